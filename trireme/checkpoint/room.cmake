target_link_libraries(trireme_checkpoint PRIVATE xxhash ZLIB::ZLIB)
