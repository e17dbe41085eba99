// Recognizes the digit in a picture: ./classify seven.pgm
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
)

func read(path string) (*[size * size]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	head := []byte(fmt.Sprintf("P5 %d %d 255\n", size, size))
	if !bytes.HasPrefix(data, head) || len(data) != len(head)+size*size {
		return nil, fmt.Errorf("%s: not a PGM file of 28 x 28 pixels", path)
	}
	return (*[size * size]byte)(data[len(head):]), nil
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: classify PICTURE.pgm")
	}
	picture, err := read(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	network, err := NewNetwork()
	if err != nil {
		log.Fatal(err)
	}
	defer network.Close()
	likely, err := network.Classify(picture)
	if err != nil {
		log.Fatal(err)
	}
	best := 0
	for digit, part := range likely {
		if part > likely[best] {
			best = digit
		}
	}
	fmt.Printf("this is a %d (%.1f %%)\n", best, 100*likely[best])
}
