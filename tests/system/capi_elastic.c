/* A plain C programme for elastic jobs: y = 2 x + 1 by gradient descent with momentum. Each
 * gradient is handed over when it is ready, and each step is committed.
 *
 *   capi_elastic FOLDER|- [KILL_RANK KILL_STEP PLACE MARKER]   trains, and rank 0 prints the end
 *   capi_elastic MISTAKE                                       makes a mistake
 *
 * The worker of this rank ends itself in this step, at the place `backward`, `update` or `commit`,
 * unless the file MARKER is there. With STOP_STEP set, rank 0 wants to stop in that step. With
 * WAIT_FOR set, the job waits in the middle until it has so many workers. */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <trireme/capi/trireme_c.h>
#include <unistd.h>

enum { kBatch = 12, kSteps = 60 };

static int failed(trireme_status status) {
  if (status == TRIREME_OK) return 0;
  fprintf(stderr, "%s\n", trireme_last_error());
  return trireme_exit_code(status);
}

static int64_t one = 1;

static trireme_tensor tensor_of(double* data) {
  trireme_tensor tensor;
  memset(&tensor, 0, sizeof tensor);
  tensor.data = data;
  tensor.device.device_type = 1;
  tensor.ndim = 1;
  tensor.dtype.code = 2;
  tensor.dtype.bits = 64;
  tensor.dtype.lanes = 1;
  tensor.shape = &one;
  return tensor;
}

struct training {
  trireme_world* world;
  trireme_gradients* gradients;
  trireme_state* state;
  double parameters[2], momenta[2];
  char** death; /* KILL_RANK KILL_STEP PLACE MARKER, or NULL */
};

static void perhaps_die(const struct training* all, int64_t step, const char* place) {
  if (!all->death || atoi(all->death[0]) != trireme_world_rank(all->world) ||
      atoi(all->death[1]) != step || strcmp(all->death[2], place) != 0)
    return;
  if (open(all->death[3], O_CREAT | O_EXCL | O_WRONLY, 0600) >= 0) raise(SIGKILL);
}

/* One step: the gradients of the mean squared error, and the update. */
static trireme_status make_step(struct training* all, int64_t step) {
  int64_t first = 0, count = 0;
  trireme_status status = trireme_world_share(all->world, kBatch, &first, &count);
  if (status == TRIREME_OK) status = trireme_gradients_begin(all->gradients, count);
  double own[2] = {0, 0};
  for (int p = 1; status == TRIREME_OK && p >= 0; --p) {
    for (int64_t i = first; i < first + count; ++i) {
      const double x = (double)((i + step) % kBatch) / kBatch;
      const double error = all->parameters[0] * x + all->parameters[1] - (2 * x + 1);
      own[p] += 2 * error * (p == 0 ? x : 1) / (double)count;
    }
    const trireme_tensor gradient = tensor_of(&own[p]);
    status = trireme_gradients_ready(all->gradients, p, &gradient);
    if (p == 1) perhaps_die(all, step, "backward");
  }
  if (status == TRIREME_OK) status = trireme_gradients_finish(all->gradients);
  for (int p = 0; status == TRIREME_OK && p < 2; ++p) {
    all->momenta[p] = 0.9 * all->momenta[p] + own[p];
    all->parameters[p] -= 0.05 * all->momenta[p];
    if (p == 0) perhaps_die(all, step, "update");
  }
  return status;
}

/* Whether the job has the workers for which the test waits in the middle of the training. */
static int is_complete(const struct training* all, long samples) {
  const char* const wanted = getenv("WAIT_FOR");
  return samples != kBatch * kSteps / 2 || !wanted ||
         trireme_world_size(all->world) >= atoi(wanted);
}

/* The note of the state says how many samples were used. */
static trireme_status train(struct training* all) {
  const char* const stop = getenv("STOP_STEP");
  long samples = 0;
  sscanf(trireme_state_read_note(all->state), "{\"samples\": %ld}", &samples);
  while (samples < kBatch * kSteps) {
    if (is_complete(all, samples)) {
      const long step = samples / kBatch + 1;
      trireme_status status = make_step(all, step);
      if (status != TRIREME_OK) return status;
      perhaps_die(all, step, "commit");
      samples += kBatch;
    } else {
      const struct timespec pause = {0, 5000000};
      nanosleep(&pause, NULL);
    }
    char note[64];
    snprintf(note, sizeof note, "{\"samples\": %ld}", samples);
    trireme_status status = trireme_state_note(all->state, note);
    if (status != TRIREME_OK) return status;
    const int wants_stop = stop && atoi(stop) * kBatch == samples;
    status = trireme_state_commit(all->state, wants_stop && trireme_world_rank(all->world) == 0);
    if (status != TRIREME_OK) return status;
  }
  return TRIREME_OK;
}

/* Returns the status that a mistake in handing over gradients gets. The step goes on after it. */
static trireme_status mistaken(struct training* all, const char* mistake) {
  double own[2] = {1, 1};
  const trireme_tensor gradient = tensor_of(&own[0]);
  trireme_tensor other = tensor_of(&own[0]);
  other.ndim = 2;
  int64_t shape[2] = {1, 1};
  other.shape = shape;
  trireme_gradients* const gradients = all->gradients;
  trireme_status status = TRIREME_INTERNAL;
  if (strcmp(mistake, "early") == 0) return trireme_gradients_ready(gradients, 0, &gradient);
  if (trireme_gradients_begin(gradients, 6) != TRIREME_OK) return TRIREME_INTERNAL;
  if (trireme_gradients_ready(gradients, 0, &gradient) != TRIREME_OK) return TRIREME_INTERNAL;
  if (strcmp(mistake, "twice") == 0) status = trireme_gradients_ready(gradients, 0, &gradient);
  if (strcmp(mistake, "form") == 0) status = trireme_gradients_ready(gradients, 1, &other);
  if (strcmp(mistake, "unknown") == 0) status = trireme_gradients_ready(gradients, 2, &gradient);
  if (strcmp(mistake, "missing") == 0) status = trireme_gradients_finish(gradients);
  char message[200] = "";
  snprintf(message, sizeof message, "%.190s", trireme_last_error());
  if (trireme_gradients_ready(gradients, 1, NULL) != TRIREME_OK ||
      trireme_gradients_finish(gradients) != TRIREME_OK || own[0] != 1)
    return TRIREME_INTERNAL;
  fprintf(stderr, "%s\n", message);
  return status;
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  alarm(120); /* A process that its test does not end must not stay. */
  struct training all = {NULL, NULL, NULL, {0.5, -0.5}, {0, 0}, argc == 6 ? argv + 2 : NULL};
  const char* const folder = argv[1][0] == '/' ? argv[1] : NULL;
  int code = failed(trireme_world_join(&all.world));
  if (code) return code;

  const char* const names[2] = {"slope", "offset"};
  const char* const momentum_names[2] = {"momentum/slope", "momentum/offset"};
  const trireme_tensor tensors[2] = {tensor_of(&all.parameters[0]), tensor_of(&all.parameters[1])};
  const trireme_tensor* const both[2] = {&tensors[0], &tensors[1]};
  code = failed(trireme_gradients_new(all.world, both, names, 2, &all.gradients));
  if (!code && !folder && strcmp(argv[1], "-") != 0)
    return failed(mistaken(&all, argv[1]));
  if (!code) code = failed(trireme_state_new(all.world, folder, folder ? 7 : 0, &all.state));
  for (int p = 0; !code && p < 2; ++p) {
    const trireme_tensor momentum = tensor_of(&all.momenta[p]);
    code = failed(trireme_state_hold(all.state, names[p], TRIREME_PARAMETER, both[p]));
    if (!code)
      code = failed(
          trireme_state_hold(all.state, momentum_names[p], TRIREME_OPTIMIZER, &momentum));
  }
  if (code) return code;

  int64_t step = 0;
  trireme_status status = TRIREME_OK;
  for (;;) {
    status = trireme_state_begin(all.state, status, &step);
    if (status != TRIREME_OK) break;
    status = train(&all);
    if (status == TRIREME_OK) status = trireme_state_end(all.state);
    if (status == TRIREME_OK || status == TRIREME_STOPPED) break;
  }
  if (status == TRIREME_DISMISSED) return 0;
  if (status != TRIREME_OK && status != TRIREME_STOPPED) return failed(status);

  if (trireme_world_rank(all.world) == 0)
    printf("{\"slope\": %.15f, \"offset\": %.15f, \"ranks\": %d, \"stopped\": %d, \"note\": %s}\n",
           all.parameters[0], all.parameters[1], trireme_world_size(all.world),
           status == TRIREME_STOPPED, trireme_state_read_note(all.state));
  trireme_state_free(all.state);
  trireme_gradients_free(all.gradients);
  code = failed(trireme_world_leave(all.world));
  trireme_world_free(all.world);
  return code;
}
