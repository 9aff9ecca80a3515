# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where: the two libraries, their headers, what
# pkg-config and find_package(cadre) need, the command, its manual pages and
# completions.  Nothing that is installed knows where it was built or where it
# lies, so the whole may be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS cadre cadre_nn EXPORT cadre_targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/cadre DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILES_MATCHING PATTERN "*.h")

# The command finds its library beside itself.
file(RELATIVE_PATH bin_to_lib /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
set_target_properties(cadre_command PROPERTIES
    INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
install(TARGETS cadre_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

# find_package(cadre): targets cadre::cadre and cadre::cadre_nn.
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/cadre)
install(EXPORT cadre_targets FILE cadreConfig.cmake NAMESPACE cadre::
    DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cadreConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cadreConfigVersion.cmake
    DESTINATION ${package_dir})

# pkg-config: the prefix follows from where the file lies.
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH pkgconfig_to_prefix /${pkgconfig_dir} /)
string(REGEX REPLACE "/$" "" pkgconfig_to_prefix ${pkgconfig_to_prefix})
foreach(library cadre cadre_nn)
    set(pkgconfig_name ${library})
    set(pkgconfig_description "Data-parallel training for C")
    if(library STREQUAL cadre_nn)
        string(APPEND pkgconfig_description ", with the trainer")
    endif()
    configure_file(cmake/cadre.pc.in
        ${PROJECT_BINARY_DIR}/pkgconfig/${library}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/pkgconfig/${library}.pc
        DESTINATION ${pkgconfig_dir})
endforeach()

# Manual pages and completions are made from what the command says of itself.
# A sanitized command is for tests alone.
if(NOT CADRE_SANITIZE)
    find_package(Python3 REQUIRED COMPONENTS Interpreter)
    set(manuals ${PROJECT_BINARY_DIR}/share)
    add_custom_command(OUTPUT ${manuals}/stamp
        COMMAND Python3::Interpreter -B
            ${PROJECT_SOURCE_DIR}/tools/make_manuals
            $<TARGET_FILE:cadre_command> ${manuals}
        COMMAND ${CMAKE_COMMAND} -E touch ${manuals}/stamp
        DEPENDS cadre_command tools/make_manuals
        COMMENT "Making manual pages and completions" VERBATIM)
    add_custom_target(manuals ALL DEPENDS ${manuals}/stamp)
    install(DIRECTORY ${manuals}/man DESTINATION ${CMAKE_INSTALL_DATADIR})
    install(DIRECTORY ${manuals}/bash-completion ${manuals}/zsh
        DESTINATION ${CMAKE_INSTALL_DATADIR})
endif()
