# The files that `cmake --install` copies, and the targets that find_package(Trireme) then gives.
# The headers of the command line are not installed.
include(CMakePackageConfigHelpers)
set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Trireme)
set(data_dir ${CMAKE_INSTALL_DATADIR}/trireme)
set(doc_dir ${CMAKE_INSTALL_DATADIR}/doc/trireme)

set(libraries trireme_all trireme_headers trireme_flags ${TRIREME_ROOMS})
if(TRIREME_PROGRAMS)
  # Trireme::worker
  list(APPEND libraries trireme_stand_in trireme_worker_commands trireme_bench_commands trireme_cli)
endif()
install(TARGETS ${libraries} EXPORT TriremeTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT TriremeTargets NAMESPACE Trireme:: DESTINATION ${config_dir})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/trireme DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN cli EXCLUDE PATTERN arrow_file.h EXCLUDE)

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/TriremeConfig.cmake.in
  ${PROJECT_BINARY_DIR}/TriremeConfig.cmake INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/TriremeConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TriremeConfig.cmake
              ${PROJECT_BINARY_DIR}/TriremeConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/FindLibTorch.cmake
              ${CMAKE_CURRENT_LIST_DIR}/TriremeModelLibrary.cmake
              ${CMAKE_CURRENT_LIST_DIR}/TriremeLibraries.cmake
        DESTINATION ${config_dir})

if(TARGET trireme_arrow)
  install(TARGETS trireme_arrow LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(TRIREME_PROGRAMS)
  # They find LibTorch where it was at build time.
  set_target_properties(trireme_c trireme trireme-worker trireme-bench PROPERTIES
    INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS trireme_c LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(TARGETS trireme trireme-worker trireme-bench
          RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/trireme DESTINATION ${data_dir}/python
        FILES_MATCHING PATTERN "*.py")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/data ${PROJECT_SOURCE_DIR}/examples
        DESTINATION ${data_dir} PATTERN __pycache__ EXCLUDE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${doc_dir})
set(places docs|${doc_dir}/docs data|${data_dir}/data examples|${data_dir}/examples
           trireme|${CMAKE_INSTALL_INCLUDEDIR}/trireme)
foreach(file README.md CHANGELOG.md LICENSE NOTICE)
  install(FILES ${PROJECT_SOURCE_DIR}/${file} DESTINATION ${doc_dir})
  list(APPEND places ${file}|${doc_dir}/${file})
endforeach()
install(CODE "set(trireme_source \"${PROJECT_SOURCE_DIR}\")\nset(trireme_places \"${places}\")")
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/TriremeDocuments.cmake)
