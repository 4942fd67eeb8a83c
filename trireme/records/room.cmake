target_link_libraries(trireme_records PRIVATE Trireme::zlib Trireme::zstd)
