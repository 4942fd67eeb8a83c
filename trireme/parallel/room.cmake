# Sums of squares and square roots in vectors: errno and traps are not looked at here.
set_source_files_properties(${PROJECT_SOURCE_DIR}/trireme/parallel/fused/kernels.cc PROPERTIES COMPILE_OPTIONS
                                                                                       "-O3;-fno-math-errno;-fno-trapping-math")
