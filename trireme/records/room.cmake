# They handle every byte of their records.
set_source_files_properties(${PROJECT_SOURCE_DIR}/trireme/records/crc32c.cc
  PROPERTIES COMPILE_OPTIONS "${hot}" SKIP_PRECOMPILE_HEADERS ON)
target_link_libraries(trireme_records PRIVATE Trireme::zlib Trireme::zstd ${CMAKE_DL_LIBS})

# Parquet and Arrow files are read by a library of their own (arrow/), which is loaded when it is
# needed. Exactly one of arrow_library.cc and its twin is compiled.
set(formats ${PROJECT_SOURCE_DIR}/trireme/records/formats)
if(TRIREME_ARROW_VERSION)
  set_source_files_properties(${formats}/no_arrow_library.cc PROPERTIES HEADER_FILE_ONLY ON)
  list(JOIN TRIREME_ARROW_LIBRARIES "," libraries)
  string(CONCAT definitions
    "TRIREME_ARROW_VERSION=\"${TRIREME_ARROW_VERSION}\";TRIREME_ARROW_LIBRARIES=\"${libraries}\";"
    "TRIREME_ARROW_BUILT=\"${CMAKE_LIBRARY_OUTPUT_DIRECTORY}\";"
    "TRIREME_ARROW_INSTALLED=\"${CMAKE_INSTALL_FULL_LIBDIR}\"")
  set_source_files_properties(${formats}/arrow_library.cc
    PROPERTIES COMPILE_DEFINITIONS "${definitions}")
else()
  set_source_files_properties(${formats}/arrow_library.cc PROPERTIES HEADER_FILE_ONLY ON)
endif()
# A row passes through these.
set_source_files_properties(${formats}/arrow.cc ${formats}/arrow_values.cc
  PROPERTIES COMPILE_OPTIONS "${hot}" SKIP_PRECOMPILE_HEADERS ON)
