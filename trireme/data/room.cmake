target_link_libraries(trireme_data_plain PRIVATE ZLIB::ZLIB)
