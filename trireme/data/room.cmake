target_link_libraries(trireme_data_plain PUBLIC trireme_records PRIVATE Trireme::zlib)
