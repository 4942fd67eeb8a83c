target_include_directories(trireme_net SYSTEM PUBLIC $<BUILD_INTERFACE:${TRIREME_ASIO_INCLUDE}>)
target_compile_definitions(trireme_net
  PUBLIC $<BUILD_INTERFACE:ASIO_STANDALONE> $<BUILD_INTERFACE:ASIO_NO_DEPRECATED>)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # Asio 1.22 knows Clang's coroutines only from before C++20.
  target_compile_definitions(trireme_net PUBLIC $<BUILD_INTERFACE:ASIO_HAS_CO_AWAIT>)
endif()
# libcurl is loaded when it is used; only its header is needed here.
target_include_directories(trireme_net SYSTEM PRIVATE ${CURL_INCLUDE_DIRS})
target_link_libraries(trireme_net PUBLIC Trireme::crypto PRIVATE ${CMAKE_DL_LIBS})
# ThreadSanitizer knows no fences. Each of our contexts has one thread, which needs none.
if(TRIREME_SANITIZE MATCHES "thread")
  target_compile_definitions(trireme_net PUBLIC ASIO_DISABLE_FENCED_BLOCK)
endif()
