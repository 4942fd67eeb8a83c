# These files use sums of squares, maxima and square roots in vectors; no code looks at errno or
# traps. Without contraction the clones for all generations of processors compute the same bits.
foreach(kernels fused/kernels.cc compression/kernels.cc shared/content_watch.cc
                servers/tables/row_kernels.cc)
  set_source_files_properties(
    ${PROJECT_SOURCE_DIR}/trireme/parallel/${kernels} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
    COMPILE_OPTIONS "-O3;-fno-math-errno;-fno-trapping-math;-ffp-contract=off")
endforeach()
