// For loops over numbers: compiled for several generations of processors, the best of which is
// chosen when the programme is loaded. Clones are made of plain functions only, into which
// templates are inlined; not under sanitizers, which cannot resolve them.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define TRIREME_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TRIREME_CLONES
#endif
#define TRIREME_INLINE inline __attribute__((always_inline))
