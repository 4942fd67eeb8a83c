/* Trireme for other languages: data-parallel training from C, and from whatever calls C (Java, C#,
 * Rust, Python). Link with -ltrireme_c.
 *
 * Every process of a job (`trireme launch --workers 2 -- ./program`, torchrun, mpirun, a cluster)
 * makes the same calls in the same order. A process alone is a world of one. Functions marked
 * COLLECTIVE return when all ranks have called them, or with an error within the time-out of the
 * world. One thread at a time uses a world and what was made from it.
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
  TRIREME_INTERNAL = 9
} trireme_status;

/* The message of the last error of the calling thread; valid until its next call. */
TRIREME_API const char* trireme_last_error(void);
/* 0, 1, 2 or 138, as in docs/errors.md. */
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

/* COLLECTIVE. Finds this process's place in its job from the environment, and meets the others. */
TRIREME_API trireme_status trireme_world_join(trireme_world** world);
TRIREME_API int trireme_world_rank(const trireme_world* world);
TRIREME_API int trireme_world_size(const trireme_world* world);
/* This rank's part of a global batch: `count` samples from `first` on. The parts differ by one
 * sample at most. TRIREME_INVALID_ARGUMENT if the batch has fewer samples than there are ranks. */
TRIREME_API trireme_status trireme_world_share(trireme_world* world, int64_t batch, int64_t* first,
                                               int64_t* count);
/* Says goodbye. Without it the others take this process for lost. */
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
 * only. `world` outlives the result. */
TRIREME_API trireme_status trireme_gradients_new(trireme_world* world,
                                                 const trireme_tensor* const* parameters,
                                                 const char* const* names, int32_t count,
                                                 trireme_gradients** gradients);
/* COLLECTIVE. Makes each gradient the mean over all samples of all ranks. Here it is the mean over
 * the `samples` of this rank, at least 1. The order and the forms are those of the parameters; a
 * gradient that is NULL counts as zero, and stays untouched. */
TRIREME_API trireme_status trireme_gradients_reduce(trireme_gradients* gradients,
                                                    const trireme_tensor* const* tensors,
                                                    int64_t samples);
TRIREME_API void trireme_gradients_free(trireme_gradients* gradients);

#ifdef __cplusplus
}
#endif

#endif /* TRIREME_C_H */
