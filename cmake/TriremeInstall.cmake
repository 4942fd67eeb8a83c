# The files that `cmake --install` copies, and the targets that find_package(Trireme) then gives:
# Trireme::Trireme (everything that a user's programme needs) and one for each room (Trireme::comm,
# ...). The library of the command line is not installed.
include(CMakePackageConfigHelpers)
set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Trireme)
set(data_dir ${CMAKE_INSTALL_DATADIR}/trireme)

add_library(trireme_all INTERFACE)
add_library(Trireme::Trireme ALIAS trireme_all)
set_target_properties(trireme_all PROPERTIES EXPORT_NAME Trireme)
target_link_libraries(trireme_all INTERFACE ${TRIREME_ROOMS})

# What a shared object for model.library is compiled with.
add_library(trireme_headers INTERFACE)
add_library(Trireme::headers ALIAS trireme_headers)
set_target_properties(trireme_headers PROPERTIES EXPORT_NAME headers)
target_link_libraries(trireme_headers INTERFACE trireme_flags Trireme::torch)
include(TriremeModelLibrary)

install(TARGETS trireme_all trireme_headers trireme_flags ${TRIREME_ROOMS} EXPORT TriremeTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT TriremeTargets NAMESPACE Trireme:: DESTINATION ${config_dir})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/trireme DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN cli EXCLUDE)

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/TriremeConfig.cmake.in
  ${PROJECT_BINARY_DIR}/TriremeConfig.cmake INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/TriremeConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TriremeConfig.cmake
              ${PROJECT_BINARY_DIR}/TriremeConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/FindLibTorch.cmake
              ${CMAKE_CURRENT_LIST_DIR}/TriremeModelLibrary.cmake
        DESTINATION ${config_dir})

set_target_properties(trireme_c PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS trireme_c LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/trireme DESTINATION ${data_dir}/python
        FILES_MATCHING PATTERN "*.py")

foreach(program trireme trireme-worker trireme-bench)
  if(TARGET ${program})
    # The programmes find LibTorch where it was at build time.
    set_target_properties(${program} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/data DESTINATION ${data_dir})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/NOTICE DESTINATION ${data_dir})
file(GLOB configurations CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*.yaml)
install(FILES ${configurations} DESTINATION ${data_dir}/examples)
