/* Training from plain C: the line y = 2 x + 1 by gradient descent, the same with any number of
 * processes. `capi_loop` trains and prints the parameters; `capi_loop MISTAKE` makes one.
 * `capi_loop order` hands over large gradients in another order on each rank, between workers that
 * take themselves for hosts. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trireme/capi/trireme_c.h>

enum { kBatch = 12, kSteps = 200 };

static int failed(trireme_status status) {
  if (status == TRIREME_OK) return 0;
  fprintf(stderr, "%s\n", trireme_last_error());
  return trireme_exit_code(status);
}

static trireme_tensor tensor_of(void* data, int64_t* shape, int dims, int code, int bits) {
  trireme_tensor tensor;
  memset(&tensor, 0, sizeof tensor);
  tensor.data = data;
  tensor.device.device_type = 1;
  tensor.ndim = dims;
  tensor.dtype.code = (uint8_t)code;
  tensor.dtype.bits = (uint8_t)bits;
  tensor.dtype.lanes = 1;
  tensor.shape = shape;
  return tensor;
}

/* The gradients of the mean squared error over this rank's samples. */
static void gradients_at(const double* parameters, int64_t first, int64_t count, double* slope,
                         double* offset) {
  *slope = *offset = 0;
  for (int64_t i = first; i < first + count; ++i) {
    const double x = (double)i / kBatch;
    const double error = parameters[0] * x + parameters[1] - (2 * x + 1);
    *slope += 2 * error * x / (double)count;
    *offset += 2 * error / (double)count;
  }
}

/* Rank r has r + 1 samples, and the gradients (r + 1) (p + 1) + step of parameter p. */
static int hand_over_in_any_order(void) {
  enum { kParameters = 3, kElements = 700000 };
  char host[32];
  snprintf(host, sizeof host, "host-%s", getenv("TRIREME_WORKER"));
  setenv("TRIREME_HOST", host, 1);
  trireme_world* world = NULL;
  int code = failed(trireme_world_join(&world));
  if (code) return code;
  const int rank = trireme_world_rank(world), size = trireme_world_size(world);
  int64_t shape = kElements;
  double* memory[kParameters];
  trireme_tensor tensors[kParameters];
  const trireme_tensor* pointers[kParameters];
  for (int p = 0; p < kParameters; ++p) {
    memory[p] = calloc(kElements, sizeof(double));
    tensors[p] = tensor_of(memory[p], &shape, 1, 2, 64);
    pointers[p] = &tensors[p];
  }
  trireme_gradients* gradients = NULL;
  code = failed(trireme_gradients_new(world, pointers, NULL, kParameters, &gradients));
  for (int step = 0; !code && step < 5; ++step) {
    code = failed(trireme_gradients_begin(gradients, rank + 1));
    for (int i = 0; !code && i < kParameters; ++i) {
      const int p = (i * (rank + 1) + step) % kParameters;
      for (int e = 0; e < kElements; ++e) memory[p][e] = (rank + 1) * (p + 1) + step;
      code = failed(trireme_gradients_ready(gradients, p, &tensors[p]));
    }
    if (!code) code = failed(trireme_gradients_finish(gradients));
    double samples = 0, squares = 0;
    for (int r = 1; r <= size; ++r) {
      samples += r;
      squares += r * r;
    }
    for (int p = 0; !code && p < kParameters; ++p)
      for (int e = 0; e < kElements; ++e) {
        const double wrong = memory[p][e] - (squares / samples * (p + 1) + step);
        if (wrong > 1e-12 || wrong < -1e-12) return 3;
      }
  }
  if (!code && rank == 0)
    printf("%d buckets, %d early\n", (int)trireme_gradients_buckets(gradients),
           (int)trireme_gradients_sent_early(gradients));
  trireme_gradients_free(gradients);
  for (int p = 0; p < kParameters; ++p) free(memory[p]);
  if (!code) code = failed(trireme_world_leave(world));
  trireme_world_free(world);
  return code;
}

int main(int argc, char** argv) {
  const char* const mistake = argc > 1 ? argv[1] : "";
  if (strcmp(mistake, "order") == 0) return hand_over_in_any_order();
  trireme_world* world = NULL;
  int code = failed(trireme_world_join(&world));
  if (code) return code;
  const int rank = trireme_world_rank(world);

  /* Rank 0's first values count. */
  double parameters[2] = {rank == 0 ? 0.5 : 7, rank == 0 ? -0.5 : 7};
  int64_t one = 1, two = 2;
  const trireme_tensor slope = tensor_of(&parameters[0], &one, 1, 2, 64);
  const trireme_tensor offset =
      tensor_of(&parameters[1], strcmp(mistake, "shape") == 0 && rank == 1 ? &two : &one, 1,
                strcmp(mistake, "type") == 0 ? 0 : 2, 64);
  const trireme_tensor* const both[2] = {&slope, &offset};
  const char* const names[2] = {"slope", "offset"};
  trireme_gradients* gradients = NULL;
  code = failed(trireme_gradients_new(world, both, names, 2, &gradients));
  if (code) return code;

  int64_t first = 0, count = 0;
  code = failed(trireme_world_share(world, kBatch, &first, &count));
  for (int step = 0; !code && step < kSteps; ++step) {
    double own[2];
    gradients_at(parameters, first, count, &own[0], &own[1]);
    const trireme_tensor of_slope = tensor_of(&own[0], &one, 1, 2, 64);
    const trireme_tensor of_offset = tensor_of(&own[1], &one, 1, 2, 64);
    const trireme_tensor* const all[2] = {&of_slope, &of_offset};
    code = failed(trireme_gradients_reduce(gradients, all,
                                           strcmp(mistake, "samples") == 0 ? 0 : count));
    for (int p = 0; !code && p < 2; ++p) parameters[p] -= 0.3 * own[p];
  }
  if (code) return code;

  float ranks[64] = {0};
  float mine = (float)rank;
  int64_t size = trireme_world_size(world);
  const trireme_tensor own_rank = tensor_of(&mine, &one, 1, 2, 32);
  const trireme_tensor all_ranks = tensor_of(ranks, &size, 1, 2, 32);
  code = failed(trireme_all_gather(world, &own_rank, &all_ranks));
  if (!code) code = failed(trireme_all_reduce(world, &own_rank, TRIREME_MAX));
  if (!code) code = failed(trireme_barrier(world));
  if (code) return code;
  if (rank == 0)
    printf("{\"slope\": %.12f, \"offset\": %.12f, \"ranks\": %d, \"last\": %.0f, "
           "\"largest\": %.0f}\n",
           parameters[0], parameters[1], (int)size, ranks[size - 1], mine);
  trireme_gradients_free(gradients);
  code = failed(trireme_world_leave(world));
  trireme_world_free(world);
  return code;
}
