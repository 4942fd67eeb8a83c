target_link_libraries(trireme_checkpoint_plain PRIVATE xxhash ZLIB::ZLIB)
