target_link_libraries(trireme_images_plain PRIVATE Trireme::jpeg Trireme::png Trireme::webp)
