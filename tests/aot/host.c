/* Calls a function of an exported library that it does not know: host LIBRARY NAME FUNCTION THREADS CALLS IN... OUT...
   Inputs are read from files as they lie in memory, outputs written likewise. Options by the environment:
   HOST_MEMORY=1 gives the instance memory of its own; HOST_ROUNDS=N loads, runs and unloads the library N times;
   HOST_WEIGHTS=PATH is the file of weights. Prints the status and what it says. */
#include SHLO_HEADER

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void *buffer(const shlo_port *port) {
  size_t bytes = (port->bytes + 63) / 64 * 64;
  void *memory = aligned_alloc(64, bytes ? bytes : 64);
  if (!memory) exit(3);
  memset(memory, 0xA5, bytes ? bytes : 64);
  return memory;
}

static void transfer(const char *path, const char *mode, void *memory, size_t bytes) {
  FILE *file = fopen(path, mode);
  if (!file) exit(4);
  size_t done = *mode == 'r' ? fread(memory, 1, bytes, file) : fwrite(memory, 1, bytes, file);
  if (done != bytes) exit(5);
  fclose(file);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#ifdef STATIC /* the name of the function that describes the library, which is linked */
static const shlo_library *open_library(char **argv, void **handle) {
  (void)argv;
  *handle = NULL;
  return STATIC();
}
#define dlclose(handle) (void)(handle)
#else
static const shlo_library *open_library(char **argv, void **handle) {
  *handle = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!*handle) {
    printf("dlopen: %s\n", dlerror());
    return NULL;
  }
  char symbol[512];
  snprintf(symbol, sizeof symbol, "%s_library", argv[2]);
  const shlo_library *(*describe)(void);
  *(void **)&describe = dlsym(*handle, symbol);
  return describe ? describe() : NULL;
}
#endif

static int round_trip(char **argv) {
  double start = now();
  void *handle;
  const shlo_library *library = open_library(argv, &handle);
  if (!library) return 2;
  if (library->interface_version != SHLO_JIT_INTERFACE) return 2;
  int number = atoi(argv[3]), calls = atoi(argv[5]);
  const shlo_function *function = &library->functions[number];
  shlo_options options = {.bytes = sizeof options, .threads = atoi(argv[4]), .weights_path = getenv("HOST_WEIGHTS")};
  if (getenv("HOST_MEMORY")) {
    options.memory_bytes = library->memory_bytes(options.threads);
    options.memory = aligned_alloc(64, (options.memory_bytes + 63) / 64 * 64);
  }
  void *instance = NULL;
  int status = library->create(&instance, &options);
  if (status) {
    printf("%d %s\n", status, library->status_text(status));
    return 1;
  }
  const void **inputs = calloc((size_t)function->input_count + 1, sizeof *inputs);
  void **outputs = calloc((size_t)function->output_count + 1, sizeof *outputs);
  char **files = argv + 6;
  for (int i = 0; i < function->input_count; i++) {
    void *memory = buffer(&function->inputs[i]);
    transfer(*files++, "rb", memory, function->inputs[i].bytes);
    inputs[i] = memory;
  }
  for (int i = 0; i < function->output_count; i++) outputs[i] = buffer(&function->outputs[i]);
  double first = 0, best = 1e9;
  for (int i = 0; i < calls && !status; i++) {
    double before = now();
    status = library->call(instance, number, inputs, outputs);
    double after = now();
    if (!i) first = after - start;
    if (after - before < best) best = after - before;
  }
  printf("%d %s; first result after %.3f ms, best call %.3f us\n", status, library->status_text(status), 1e3 * first,
         1e6 * best);
  for (int i = 0; i < function->output_count && !status; i++)
    transfer(*files++, "wb", outputs[i], function->outputs[i].bytes);
  library->destroy(instance);
  free(options.memory);
  for (int i = 0; i < function->input_count; i++) free((void *)inputs[i]);
  for (int i = 0; i < function->output_count; i++) free(outputs[i]);
  free(inputs);
  free(outputs);
  dlclose(handle);
  return status != 0;
}

int main(int argc, char **argv) {
  if (argc < 6) return 2;
  const char *rounds = getenv("HOST_ROUNDS");
  int status = 0;
  for (int i = 0; i < (rounds ? atoi(rounds) : 1) && !status; i++) status = round_trip(argv);
  return status;
}
