target_link_libraries(trireme_data_plain PUBLIC trireme_checkpoint PRIVATE ZLIB::ZLIB)
