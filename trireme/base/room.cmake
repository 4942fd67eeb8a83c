target_link_libraries(trireme_base PRIVATE OpenSSL::Crypto)
set_source_files_properties(${PROJECT_SOURCE_DIR}/trireme/base/version.cc PROPERTIES
  COMPILE_DEFINITIONS TRIREME_VERSION="${PROJECT_VERSION}")
