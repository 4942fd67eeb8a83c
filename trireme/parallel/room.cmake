# Sums of squares, maxima and square roots in vectors: errno and traps are not looked at here. No contraction: every generation of
# processors computes the same bits.
foreach(kernels fused/kernels.cc compression/kernels.cc shared/content_watch.cc)
  set_source_files_properties(
    ${PROJECT_SOURCE_DIR}/trireme/parallel/${kernels} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
    COMPILE_OPTIONS "-O3;-fno-math-errno;-fno-trapping-math;-ffp-contract=off")
endforeach()
