// TRIREME_CLONES marks loops over numbers. The compiler makes a version for each of several
// generations of processors, and the loader picks the best one. Only plain functions are cloned;
// templates are inlined into them. Sanitizers cannot resolve clones, so there are none under them.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define TRIREME_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TRIREME_CLONES
#endif
#define TRIREME_INLINE inline __attribute__((always_inline))
