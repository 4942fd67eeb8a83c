target_link_libraries(trireme_checkpoint_plain PUBLIC trireme_launch PRIVATE xxhash ZLIB::ZLIB)
