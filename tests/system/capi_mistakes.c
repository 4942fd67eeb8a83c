/* Mistakes of the last rank in a plain C loop, which test_capi.py expects all ranks to name.
 * `capi_mistakes MISTAKE [apart]`: with `apart` each worker takes itself for a host, so that
 * gradients travel as soon as they are handed over. Without a mistake, and after one that is
 * allowed, rank 0 prints the parameters. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trireme/capi/trireme_c.h>
#include <unistd.h>

enum { kSteps = 5 };

static const char* mistake = "";
static int makes_it; /* This is the last rank. */
static int64_t one = 1, two = 2;

static int is(const char* name) { return strcmp(mistake, name) == 0; }

static trireme_tensor tensor_of(double* data, int64_t* shape) {
  trireme_tensor tensor;
  memset(&tensor, 0, sizeof tensor);
  tensor.data = data;
  tensor.device.device_type = 1;
  tensor.ndim = 1;
  tensor.dtype.code = 2;
  tensor.dtype.bits = 64;
  tensor.dtype.lanes = 1;
  tensor.shape = shape;
  return tensor;
}

struct training {
  trireme_world* world;
  trireme_gradients* gradients;
  double memory[2]; /* slope and offset */
  double elsewhere[2];
  double* offset; /* It may move. */
};

/* Before a step. */
static trireme_status prepare(struct training* all, int step) {
  const int is_other = is("rate") && makes_it && step >= 3;
  trireme_status status =
      trireme_gradients_fact(all->gradients, "learning rate", is_other ? "0.2" : "0.1");
  if (status != TRIREME_OK || step != 3) return status;
  if (is("together")) all->memory[0] = 5;
  if (!makes_it) return status;
  int64_t first = 0, count = 0;
  trireme_tensor there = tensor_of(all->elsewhere, &one);
  all->elsewhere[0] = is("other_values") ? 7 : *all->offset;
  if (is("share")) status = trireme_world_share(all->world, 30, &first, &count);
  if (is("fact")) status = trireme_gradients_fact(all->gradients, "momentum", "0.9");
  if (is("refused")) status = trireme_gradients_refuse(all->gradients, "no wind", "waiting");
  if (is("finish")) status = trireme_gradients_finish(all->gradients);
  if (is("written_late") || is("freed") || is("unchecked")) *all->offset = 7;
  if (is("moved") || is("other_values") || is("shape") || is("type")) {
    all->offset = all->elsewhere;
    if (is("shape")) there.shape = &two;
    if (is("type")) there.dtype.bits = 32;
    status = trireme_gradients_hold(all->gradients, 1, &there);
  }
  return status;
}

static trireme_status make_step(struct training* all, int step) {
  const int is_now = makes_it && step == 3;
  double own[2] = {1, 1};
  if (is_now && (is("nan") || is("skipped"))) own[1] = NAN;
  if (is_now && is("infinite")) own[0] = INFINITY;
  const trireme_tensor gradients[2] = {tensor_of(&own[0], &one), tensor_of(&own[1], &one)};
  trireme_status status = trireme_gradients_begin(all->gradients, is_now && is("samples") ? 0 : 6);
  for (int p = 1; status == TRIREME_OK && p >= 0; --p)
    status = trireme_gradients_ready(all->gradients, p, &gradients[p]);
  if (status == TRIREME_OK) status = trireme_gradients_finish(all->gradients);
  if (status != TRIREME_OK || trireme_gradients_nonfinite_rank(all->gradients) >= 0) return status;
  all->memory[0] -= 0.1 * own[0];
  *all->offset -= 0.1 * own[1];
  if (is("written") && makes_it && step == 1) *all->offset = 7;
  return status;
}

static int failed(trireme_status status) {
  if (status == TRIREME_OK) return 0;
  fprintf(stderr, "%s\n", trireme_last_error());
  return trireme_exit_code(status);
}

static int train(struct training* all) {
  int code = 0;
  if (is("skipped")) code = failed(trireme_gradients_skip_nonfinite(all->gradients, 1));
  if (is("unchecked")) code = failed(trireme_gradients_check_every(all->gradients, 0));
  if (is("every") && makes_it) code = failed(trireme_gradients_check_every(all->gradients, 32));
  for (int step = 1; !code && step <= (is("left") && makes_it ? 3 : kSteps); ++step) {
    if (is("alone") && !makes_it && step == 3) code = failed(trireme_barrier(all->world));
    if (!code) code = failed(prepare(all, step));
    if (!code) code = failed(make_step(all, step));
  }
  return code;
}

int main(int argc, char** argv) {
  mistake = argc > 1 ? argv[1] : "";
  alarm(120); /* A process that its test does not end must not stay. */
  const char* const worker = getenv("TRIREME_WORKER");
  if (argc > 2 && worker) {
    char host[32];
    snprintf(host, sizeof host, "host-%s", worker);
    setenv("TRIREME_HOST", host, 1);
  }
  struct training all = {NULL, NULL, {1.5, -0.5}, {0, 0}, NULL};
  all.offset = &all.memory[1];
  int code = failed(trireme_world_join(&all.world));
  if (code) return code;
  makes_it = trireme_world_rank(all.world) == trireme_world_size(all.world) - 1;

  const char* const names[2] = {"slope", "offset"};
  const trireme_tensor tensors[2] = {tensor_of(&all.memory[0], &one), tensor_of(all.offset, &one)};
  const trireme_tensor* const both[2] = {&tensors[0], &tensors[1]};
  code = failed(trireme_gradients_new(all.world, both, names, 2, &all.gradients));
  if (!code) code = train(&all);
  if (code) return code;
  if (is("freed")) trireme_gradients_free(all.gradients);
  code = failed(trireme_world_leave(all.world));
  if (!code && is("behind_leave")) code = failed(make_step(&all, kSteps + 1));
  if (code) return code;
  if (trireme_world_rank(all.world) == 0) printf("%.1f %.1f\n", all.memory[0], *all.offset);
  if (!is("freed")) trireme_gradients_free(all.gradients);
  trireme_world_free(all.world);
  return 0;
}
