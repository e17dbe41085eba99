/* Continues a text: ./generate COUNT [vocabulary.bin] < TOKENS
 *
 * Reads the tokens of the prompt, and writes at most COUNT tokens: as numbers, or with a vocabulary as text, up to a token
 * that ends it. Everything about the model is read from the library's own description. */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The functions in model.h, and the inputs that both have in common. */
enum { PROMPT, NEXT };
enum { TOKENS, SEQUENCE, POSITION, COUNT, TEMPERATURE, TOP_P, TOP_K, RANDOM, CACHES };
enum { TOKEN_OUT, LOGITS_OUT, RANDOM_OUT, CACHES_OUT };
enum { ENDS_TEXT = 0xFFFF };

/* A text that is generated: the caches and the state of the random numbers. */
typedef struct {
  model_instance *instance;
  float temperature, top_p, *logits;
  int32_t top_k;
  uint64_t random[2];
  int32_t cache_count;
  const void **inputs;
  void **outputs;
} session;

static int fail(const char *what, const char *why) {
  fprintf(stderr, "generate: %s: %s\n", what, why);
  return EXIT_FAILURE;
}

static void *zeroed(uint64_t bytes) {
  void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (!memory) exit(fail("memory", "there is not enough"));
  return memset(memory, 0, bytes);
}

/* A cache is an input and an output with the same memory. */
static void start(session *s) {
  const shlo_function *f = &model_library()->functions[NEXT];
  s->inputs = zeroed(sizeof *s->inputs * (uint64_t)f->input_count);
  s->outputs = zeroed(sizeof *s->outputs * (uint64_t)f->output_count);
  s->logits = zeroed(f->outputs[LOGITS_OUT].bytes);
  s->cache_count = f->output_count - CACHES_OUT;
  for (int32_t i = 0; i < s->cache_count; i++)
    s->inputs[CACHES + i] = s->outputs[CACHES_OUT + i] = zeroed(f->inputs[CACHES + i].bytes);
  s->inputs[TEMPERATURE] = &s->temperature, s->inputs[TOP_P] = &s->top_p, s->inputs[TOP_K] = &s->top_k;
  s->inputs[RANDOM] = s->random, s->outputs[LOGITS_OUT] = s->logits;
}

static void finish(session *s) {
  for (int32_t i = 0; i < s->cache_count; i++) free(s->outputs[CACHES_OUT + i]);
  free(s->logits), free(s->inputs), free(s->outputs);
  model_destroy(s->instance);
}

/* Appends `count` tokens at `position`, and writes the token that follows them. */
static int32_t advance(session *s, int function, const int32_t *tokens, int32_t position, int32_t count, int32_t *token) {
  uint64_t random[2];
  int32_t found, sequence = 0;
  s->inputs[TOKENS] = tokens, s->inputs[SEQUENCE] = &sequence, s->inputs[POSITION] = &position, s->inputs[COUNT] = &count;
  s->outputs[TOKEN_OUT] = &found, s->outputs[RANDOM_OUT] = random;
  int32_t status = model_call(s->instance, function, s->inputs, s->outputs);
  memcpy(s->random, random, sizeof random);
  *token = found;
  return status;
}

/* Reads numbers up to the end of the input. Returns how many there are, -1 for other text, or `most` + 1. */
static int32_t read_tokens(int32_t *tokens, int32_t most, int32_t vocabulary) {
  int32_t count = 0, token, found;
  while ((found = scanf("%d", &token)) == 1 && count <= most) {
    if (token < 0 || token >= vocabulary) return -1;
    if (count < most) tokens[count] = token;
    count++;
  }
  return found == 0 ? -1 : count;
}

/* Returns the texts of all tokens: for each two bytes with its length, and the text; NULL if that is not in the file. */
static const unsigned char **read_vocabulary(const char *path, int32_t count) {
  FILE *file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END)) return NULL;
  long bytes = ftell(file);
  unsigned char *text = zeroed((uint64_t)bytes + 1);
  const unsigned char **texts = zeroed(sizeof *texts * (uint64_t)count);
  rewind(file);
  int fits = fread(text, 1, (size_t)bytes, file) == (size_t)bytes;
  fclose(file);
  long at = 0;
  for (int32_t i = 0; i < count && fits; i++) {
    texts[i] = text + at;
    fits = at + 2 <= bytes;
    int length = fits ? text[at] | text[at + 1] << 8 : 0;
    at += 2 + (length == ENDS_TEXT ? 0 : length);
  }
  return fits && at == bytes ? texts : NULL;
}

/* Writes a token. Returns 0 if it ends the text. */
static int write_token(int32_t token, const unsigned char **texts) {
  if (!texts) return printf("%d ", token);
  int length = texts[token][0] | texts[token][1] << 8;
  if (length == ENDS_TEXT) return 0;
  fwrite(texts[token] + 2, 1, (size_t)length, stdout);
  fflush(stdout);
  return 1;
}

/* Calls `prompt` for each chunk of the tokens. */
static int32_t read_prompt(session *s, const int32_t *tokens, int32_t count, int32_t chunk, int32_t *token) {
  int32_t status = SHLO_OK;
  for (int32_t at = 0; at < count && status == SHLO_OK; at += chunk)
    status = advance(s, PROMPT, tokens + at, at, count - at < chunk ? count - at : chunk, token);
  return status;
}

int main(int argument_count, char **arguments) {
  if (argument_count < 2 || argument_count > 3) return fail("usage", "generate COUNT [vocabulary.bin] < TOKENS");
  const shlo_function *functions = model_library()->functions;
  int32_t slots = (int32_t)functions[NEXT].inputs[CACHES].shape[2];
  int32_t chunk = (int32_t)functions[PROMPT].inputs[TOKENS].shape[1];
  int32_t vocabulary = (int32_t)functions[NEXT].outputs[LOGITS_OUT].shape[1];
  int32_t *tokens = zeroed(sizeof *tokens * (uint64_t)slots), token;
  int32_t count = read_tokens(tokens, slots, vocabulary), left = atoi(arguments[1]);
  if (count < 1 || count > slots) return fail("the prompt", count > slots ? "it is too long" : "expected tokens");
  const unsigned char **texts = argument_count == 3 ? read_vocabulary(arguments[2], vocabulary) : NULL;
  if (argument_count == 3 && !texts) return fail(arguments[2], "not the vocabulary of this model");

  session s = {.temperature = 0, .top_p = 1, .top_k = 1};
  int32_t status = model_create(&s.instance, NULL);
  if (status == SHLO_OK) {
    start(&s);
    status = read_prompt(&s, tokens, count, chunk, &token);
    while (status == SHLO_OK && left-- > 0 && write_token(token, texts) && left > 0 && count < slots)
      status = advance(&s, NEXT, &token, count++, 1, &token);
    finish(&s);
  }
  printf("\n");
  return status == SHLO_OK ? EXIT_SUCCESS : fail("model", model_status_text(status));
}
