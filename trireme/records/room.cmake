# They handle every byte of their records.
set_source_files_properties(${PROJECT_SOURCE_DIR}/trireme/records/crc32c.cc
  PROPERTIES COMPILE_OPTIONS "${hot}" SKIP_PRECOMPILE_HEADERS ON)
target_link_libraries(trireme_records PRIVATE Trireme::zlib Trireme::zstd ${CMAKE_DL_LIBS})
