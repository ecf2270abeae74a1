# SPDX-License-Identifier: MIT
# What `cmake --install` puts where, so that find_package(halfstep) and pkg-config find it. Every
# file is the same on every architecture.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_DATADIR}/cmake/halfstep)
install(TARGETS halfstep EXPORT halfstep-targets)
install(EXPORT halfstep-targets NAMESPACE halfstep:: DESTINATION ${package_dir})
install(DIRECTORY include/halfstep DESTINATION include
        FILES_MATCHING PATTERN "*.hpp" PATTERN "*.inc")

configure_package_config_file(cmake/halfstep-config.cmake.in
  ${PROJECT_BINARY_DIR}/halfstep-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/halfstep-config-version.cmake
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES ${PROJECT_BINARY_DIR}/halfstep-config.cmake
              ${PROJECT_BINARY_DIR}/halfstep-config-version.cmake
        DESTINATION ${package_dir})

configure_file(cmake/halfstep.pc.in ${PROJECT_BINARY_DIR}/halfstep.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/halfstep.pc DESTINATION ${CMAKE_INSTALL_DATADIR}/pkgconfig)
