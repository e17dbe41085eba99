package main

// #cgo LDFLAGS: -L${SRCDIR} -ldigits -lm -lpthread
// #include "digits.h"
import "C"

import (
	"errors"
	"runtime"
	"unsafe"
)

const size = 28

// Network is an instance of the library. Its calls are serialized.
type Network struct{ instance *C.digits_instance }

func check(status C.int32_t) error {
	if status == C.SHLO_OK {
		return nil
	}
	return errors.New(C.GoString(C.digits_status_text(status)))
}

// NewNetwork creates an instance; Close destroys it.
func NewNetwork() (*Network, error) {
	network := &Network{}
	if err := check(C.digits_create(&network.instance, nil)); err != nil {
		return nil, err
	}
	runtime.SetFinalizer(network, (*Network).Close)
	return network, nil
}

// Classify returns the probability of each digit.
func (network *Network) Classify(picture *[size * size]byte) (likely [10]float32, err error) {
	in, out := (*C.uint8_t)(unsafe.Pointer(picture)), (*C.float)(unsafe.Pointer(&likely))
	err = check(C.digits_main(network.instance, in, out))
	runtime.KeepAlive(network)
	return
}

// Close destroys the instance.
func (network *Network) Close() {
	C.digits_destroy(network.instance)
	network.instance = nil
}
