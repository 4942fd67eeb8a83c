target_link_libraries(trireme_data_plain
  PUBLIC trireme_records trireme_images_plain PRIVATE Trireme::xxhash)
