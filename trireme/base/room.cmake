target_link_libraries(trireme_base PRIVATE Trireme::crypto)
set_source_files_properties(${PROJECT_SOURCE_DIR}/trireme/base/version.cc PROPERTIES
  COMPILE_DEFINITIONS TRIREME_VERSION="${PROJECT_VERSION}")
set_source_files_properties(${PROJECT_SOURCE_DIR}/trireme/base/built_with.cc PROPERTIES
  COMPILE_DEFINITIONS
  "TRIREME_TORCH_VERSION=\"${TRIREME_TORCH_VERSION}\";TRIREME_TORCH_ROOT=\"${TRIREME_TORCH_ROOT}\"")
