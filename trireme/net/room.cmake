target_include_directories(trireme_net SYSTEM PUBLIC $<BUILD_INTERFACE:${TRIREME_ASIO_INCLUDE}>)
target_compile_definitions(trireme_net PUBLIC ASIO_STANDALONE ASIO_NO_DEPRECATED)
target_link_libraries(trireme_net PUBLIC OpenSSL::Crypto CURL::libcurl)
# ThreadSanitizer knows no fences. Each of our contexts has one thread, which needs none.
if(TRIREME_SANITIZE MATCHES "thread")
  target_compile_definitions(trireme_net PUBLIC ASIO_DISABLE_FENCED_BLOCK)
endif()
