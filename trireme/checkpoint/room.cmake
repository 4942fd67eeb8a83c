target_link_libraries(trireme_checkpoint PRIVATE Trireme::xxhash Trireme::zlib)
