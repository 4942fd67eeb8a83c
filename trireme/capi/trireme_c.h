/* Trireme for other languages: data-parallel training from C, and from whatever calls C (Java, C#,
 * Rust, Python). Link with -ltrireme_c.
 *
 * Every process of a job (`trireme launch --workers 2 -- ./program`, torchrun, mpirun, a cluster)
 * makes the same calls in the same order. A process alone is a world of one. Functions marked
 * COLLECTIVE return when all ranks have called them, or with an error within the time-out of the
 * world. One thread at a time uses a world and what was made from it.
 *
 * In an elastic job (`trireme launch --elastic 2:4 -- ./program`) the job goes on when a process
 * is lost, and may take in others: see trireme_state below.
 *
 * A function that may fail returns a trireme_status. trireme_last_error() then has the message:
 * what happened, the value, and what to do. A process that gives up ends with
 * trireme_exit_code(status), so that launchers and schedulers know whether to start it again. */
#ifndef TRIREME_C_H
#define TRIREME_C_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TRIREME_API __attribute__((visibility("default")))
#else
#define TRIREME_API
#endif

typedef enum {
  TRIREME_OK = 0,
  TRIREME_INVALID_ARGUMENT = 1, /* The caller's input is wrong. */
  TRIREME_NOT_FOUND = 2,
  TRIREME_UNSUPPORTED = 3,
  TRIREME_TIMEOUT = 4,
  TRIREME_PEER_LOST = 5, /* Another rank crashed, stopped or fell silent. */
  TRIREME_ABORTED = 6,
  TRIREME_CORRUPT = 7,
  TRIREME_IO = 8,
  TRIREME_INTERNAL = 9,
  /* No errors: the loop ends, for the reason that trireme_last_error() has. */
  TRIREME_MEET_AGAIN = 10, /* The job goes on with other workers: trireme_state_begin. */
  TRIREME_STOPPED = 11,    /* A rank was asked to stop, and all ranks leave the loop. */
  TRIREME_DISMISSED = 12   /* The job goes on without this process. */
} trireme_status;

/* The message of the last error of the calling thread; valid until its next call. */
TRIREME_API const char* trireme_last_error(void);
/* 0, 1, 2, 138 or 143, as in docs/errors.md. */
TRIREME_API int trireme_exit_code(trireme_status status);
TRIREME_API const char* trireme_version(void);
/* The version of LibTorch that the library was built with, such as "2.13.0". */
TRIREME_API const char* trireme_torch_version(void);

/* A tensor of the caller's, with the layout of DLPack's DLTensor: a pointer to a DLTensor may be
 * passed. The memory is the CPU's (device_type 1) and contiguous. Types: float32 and float64,
 * float16 and bfloat16, int32, int64, uint8. */
typedef struct {
  void* data;
  struct {
    int32_t device_type; /* 1: CPU */
    int32_t device_id;
  } device;
  int32_t ndim;
  struct {
    uint8_t code; /* 0: signed, 1: unsigned, 2: float, 4: bfloat */
    uint8_t bits;
    uint16_t lanes; /* 1 */
  } dtype;
  int64_t* shape;
  int64_t* strides; /* In elements; NULL: contiguous. */
  uint64_t byte_offset;
} trireme_tensor;

typedef struct trireme_world trireme_world;
typedef struct trireme_gradients trireme_gradients;
typedef struct trireme_state trireme_state;

/* COLLECTIVE. Finds this process's place in its job from the environment, and meets the others.
 * TRIREME_DISMISSED if an elastic job needs no further worker. In a job of several processes,
 * memory that LibTorch allocates for CPU tensors from now on lies in large pages, and stays with
 * the process when it is freed. */
TRIREME_API trireme_status trireme_world_join(trireme_world** world);
TRIREME_API int trireme_world_rank(const trireme_world* world);
TRIREME_API int trireme_world_size(const trireme_world* world);
/* 1 if the number of workers may change while the job runs. */
TRIREME_API int trireme_world_is_elastic(const trireme_world* world);
/* This rank's part of a global batch: `count` samples from `first` on. The parts differ by one
 * sample at most. All ranks compare the batch in the next step, unless LibTorch's gradients are
 * switched off in this thread, as in an evaluation. TRIREME_INVALID_ARGUMENT if the batch has
 * fewer samples than there are ranks. */
TRIREME_API trireme_status trireme_world_share(trireme_world* world, int64_t batch, int64_t* first,
                                               int64_t* count);
/* COLLECTIVE. Says goodbye. Without it the others take this process for lost. Behind it there are
 * no steps. TRIREME_INVALID_ARGUMENT, naming the parameter, if the ranks' parameters are not alike
 * (trireme_gradients_new); a change that one rank alone is to make at the end comes behind it. */
TRIREME_API trireme_status trireme_world_leave(trireme_world* world);
TRIREME_API void trireme_world_free(trireme_world* world); /* NULL is allowed, also below. */

typedef enum { TRIREME_SUM = 0, TRIREME_MEAN = 1, TRIREME_MAX = 2, TRIREME_MIN = 3 } trireme_op;

/* COLLECTIVE. All ranks pass tensors of one type and size. */
TRIREME_API trireme_status trireme_all_reduce(trireme_world* world, const trireme_tensor* tensor,
                                              trireme_op op);
TRIREME_API trireme_status trireme_broadcast(trireme_world* world, const trireme_tensor* tensor,
                                             int root);
/* `all` has the elements of all ranks, in the order of the ranks. */
TRIREME_API trireme_status trireme_all_gather(trireme_world* world, const trireme_tensor* own,
                                              const trireme_tensor* all);
TRIREME_API trireme_status trireme_barrier(trireme_world* world);

/* COLLECTIVE. Makes the parameters of every rank rank 0's, and prepares for their gradients. The
 * names and forms of the `count` parameters must be the same on all ranks: otherwise every rank
 * gets TRIREME_INVALID_ARGUMENT naming two ranks and the first difference. Floating-point types
 * only. `world` outlives the result. The parameters stay where they are until the result is freed:
 * the ranks compare them, and new workers of an elastic job get them too. */
TRIREME_API trireme_status trireme_gradients_new(trireme_world* world,
                                                 const trireme_tensor* const* parameters,
                                                 const char* const* names, int32_t count,
                                                 trireme_gradients** gradients);
/* COLLECTIVE. Makes each gradient the mean over all samples of all ranks. Here it is the mean over
 * the `samples` of this rank, at least 1. The order and the forms are those of the parameters; a
 * gradient that is NULL counts as zero, and stays untouched. If one rank makes a mistake that
 * would train wrongly, every rank gets an error that names rank and step (see below). */
TRIREME_API trireme_status trireme_gradients_reduce(trireme_gradients* gradients,
                                                    const trireme_tensor* const* tensors,
                                                    int64_t samples);

/* The same in parts, so that gradients travel while backward still computes others. COLLECTIVE:
 * all ranks make these three calls for the same steps. begin() tells the number of samples, at
 * least 1. ready() hands over the gradient of parameter `index`, once in a step, when it is
 * complete; NULL counts as zero. Its memory stays as it is until finish(), which writes the mean
 * there. Ranks may hand over gradients in any order: they travel in buckets, in the order in which
 * rank 0's were ready in the first step. TRIREME_INVALID_ARGUMENT naming the parameter if a
 * gradient comes twice, has another form, or is missing in finish(); the step then goes on, and
 * the missing gradient may still come. Buckets travel early where no two processes share a host;
 * others exchange through memory, in finish(). */
TRIREME_API trireme_status trireme_gradients_begin(trireme_gradients* gradients, int64_t samples);
TRIREME_API trireme_status trireme_gradients_ready(trireme_gradients* gradients, int32_t index,
                                                   const trireme_tensor* tensor);
TRIREME_API trireme_status trireme_gradients_finish(trireme_gradients* gradients);

/* Mistakes of one rank. Each step ends on every rank with TRIREME_INVALID_ARGUMENT, naming rank,
 * step (counted in calls of finish() or reduce()) and what differs, if the ranks' parameters or
 * facts are not alike, or a rank has refused the step. A rank refuses it by a wrong number of
 * samples or a finish() without a begin(), or by trireme_gradients_refuse. A gradient that is NaN
 * or infinite is TRIREME_INTERNAL on every rank, naming rank, step and parameter; the gradients
 * are then those of this rank alone. Each of the following functions is called on all ranks alike,
 * between steps. */

/* Tells a value that is the same on all ranks, such as "learning rate" and "0.1", until another
 * value is told; NULL: it is told no longer. The ranks compare their facts in each step. */
TRIREME_API trireme_status trireme_gradients_fact(trireme_gradients* gradients, const char* name,
                                                  const char* value);
/* The ranks compare a digest of their parameters in the first two steps, in each `steps`-th step
 * (64 unless set), and in trireme_world_leave. 0: never. */
TRIREME_API trireme_status trireme_gradients_check_every(trireme_gradients* gradients,
                                                         int64_t steps);
/* Parameter `index` now lies in other memory. The ranks compare their parameters in the next step.
 * With another form, every rank gets TRIREME_INVALID_ARGUMENT: this one now, and the others in
 * their next step. One rank alone may call it. */
TRIREME_API trireme_status trireme_gradients_hold(trireme_gradients* gradients, int32_t index,
                                                  const trireme_tensor* tensor);
/* With `skips` not 0, gradients that are NaN or infinite are no error: a warning says so. The
 * caller then leaves out the update if trireme_gradients_nonfinite_rank() is not -1. That is the
 * lowest rank that had such a gradient in the last step, the same on all ranks; 0 if only their
 * sum was too large. */
TRIREME_API trireme_status trireme_gradients_skip_nonfinite(trireme_gradients* gradients,
                                                            int skips);
TRIREME_API int32_t trireme_gradients_nonfinite_rank(const trireme_gradients* gradients);
/* This rank has found a mistake of its own: `what` happened, and what to do (`remedy`). Returns
 * TRIREME_INVALID_ARGUMENT with this message, and so does the next step of every other rank. One
 * rank alone may call it. */
TRIREME_API trireme_status trireme_gradients_refuse(trireme_gradients* gradients, const char* what,
                                                    const char* remedy);
/* The number of buckets, and of those that left before finish() in the last step. */
TRIREME_API int32_t trireme_gradients_buckets(const trireme_gradients* gradients);
TRIREME_API int32_t trireme_gradients_sent_early(const trireme_gradients* gradients);
TRIREME_API void trireme_gradients_free(trireme_gradients* gradients);

/* The state of a training: named tensors and a note, such as the place in the data. An elastic job
 * goes on from it when a worker is lost, and it may be saved to a folder in Trireme's format of
 * checkpoints. A loop looks like this on every rank:
 *
 *   trireme_status status = TRIREME_OK;
 *   for (;;) {
 *     status = trireme_state_begin(state, status, &step);
 *     if (status != TRIREME_OK) break;
 *     status = train_from(step);     // Each step ends with trireme_state_commit().
 *     if (status == TRIREME_OK) status = trireme_state_end(state);
 *     if (status == TRIREME_OK || status == TRIREME_STOPPED) break;
 *   }
 *
 * train_from() returns the first status that is not TRIREME_OK. Its step is then given up: begin()
 * puts back the newest commit that a worker has. Ranks and shares may have changed. */
typedef enum {
  TRIREME_PARAMETER = 0, /* Of the model: "layer.weight" */
  TRIREME_BUFFER = 1,    /* Of the model, without a gradient. */
  TRIREME_OPTIMIZER = 2, /* Of the optimizer: "exp_avg/layer.weight" */
  TRIREME_OTHER = 3
} trireme_kind;

/* COLLECTIVE. Make it behind the gradients. With a `folder` the newest checkpoint in it is where
 * the job begins, and each `every`-th commit is saved there (0: none). `folder` may be NULL.
 * `world` outlives the result. */
TRIREME_API trireme_status trireme_state_new(trireme_world* world, const char* folder,
                                             int64_t every, trireme_state** state);
/* Adds a tensor, or gives the tensor of this name another place. It is the caller's memory, equal
 * on all ranks, and stays where it is. All ranks add the same tensors before the same commit. */
TRIREME_API trireme_status trireme_state_hold(trireme_state* state, const char* name,
                                              trireme_kind kind, const trireme_tensor* tensor);
/* Sets the note that belongs to the next commit: text in UTF-8. */
TRIREME_API trireme_status trireme_state_note(trireme_state* state, const char* note);
/* COLLECTIVE. Gives every rank the same state: the newest commit that a worker has in memory, or
 * else the newest checkpoint, or else what rank 0's tensors hold. `*step` is the number of its
 * commits. `status` is TRIREME_OK at first, and then the one with which the loop ended. After the
 * loss of a worker, or TRIREME_MEET_AGAIN, the workers that are left meet first, with those that
 * join. Returns `status` itself if no lost worker is its cause, or the job is not elastic, and
 * TRIREME_DISMISSED if the job goes on without this process. */
TRIREME_API trireme_status trireme_state_begin(trireme_state* state, trireme_status status,
                                               int64_t* step);
/* COLLECTIVE. The end of a step, behind the update of the parameters. If `wants_stop` is not 0 on
 * some rank, the state is saved, and all ranks get TRIREME_STOPPED. */
TRIREME_API trireme_status trireme_state_commit(trireme_state* state, int wants_stop);
/* COLLECTIVE. The end of the loop: all ranks are there, and what was saved is on the disk. */
TRIREME_API trireme_status trireme_state_end(trireme_state* state);
/* Between begin() and the next commit: the note, and the value of a tensor that the state has and
 * nobody holds here. The note is valid until the next call. TRIREME_NOT_FOUND if there is no such
 * tensor. */
TRIREME_API const char* trireme_state_read_note(const trireme_state* state);
TRIREME_API trireme_status trireme_state_read(trireme_state* state, const char* name,
                                              const trireme_tensor* tensor);
TRIREME_API void trireme_state_free(trireme_state* state);

#ifdef __cplusplus
}
#endif

#endif /* TRIREME_C_H */
