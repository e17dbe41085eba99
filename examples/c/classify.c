/* Recognizes the digit in a picture: ./classify seven.pgm */
#include "digits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 28, DIGITS = 10 };

static int fail(const char *what, const char *why) {
  fprintf(stderr, "classify: %s: %s\n", what, why);
  return EXIT_FAILURE;
}

/* Reads a binary PGM file of 28 x 28 pixels. Returns NULL, or an error message. */
static const char *read_picture(const char *path, uint8_t *picture) {
  FILE *file = fopen(path, "rb");
  if (!file) return strerror(errno);
  int width = 0, height = 0, most = 0;
  int found = fscanf(file, "P5 %d %d %d", &width, &height, &most);
  int fits = found == 3 && width == SIZE && height == SIZE && most == 255;
  fgetc(file); /* end of the line */
  fits = fits && fread(picture, 1, SIZE * SIZE, file) == SIZE * SIZE;
  fclose(file);
  return fits ? NULL : "not a PGM file of 28 x 28 pixels";
}

int main(int count, char **arguments) {
  if (count != 2) return fail("usage", "classify PICTURE.pgm");
  uint8_t picture[SIZE * SIZE];
  const char *wrong = read_picture(arguments[1], picture);
  if (wrong) return fail(arguments[1], wrong);

  digits_instance *network;
  int32_t status = digits_create(&network, NULL);
  if (status != SHLO_OK) return fail("digits_create", digits_status_text(status));
  float likely[DIGITS];
  status = digits_main(network, picture, likely);
  digits_destroy(network);
  if (status != SHLO_OK) return fail("digits_main", digits_status_text(status));

  int best = 0;
  for (int digit = 0; digit < DIGITS; digit++) {
    printf("%d  %5.1f %%\n", digit, 100 * likely[digit]);
    if (likely[digit] > likely[best]) best = digit;
  }
  printf("this is a %d\n", best);
  return EXIT_SUCCESS;
}
