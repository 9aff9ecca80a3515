# SPDX-License-Identifier: Apache-2.0
# A room is a folder of src/.  cadre_room() makes one object library of it and
# puts the objects into one of the two libraries that come out:
#
#   cadre_room(transport
#       LIBRARY cadre
#       SOURCES transport.c inproc.c tcp.c
#       LINK    PkgConfig::JANSSON)        # what is not ours, if anything
#
# Which room may include which is not said here: tools/check_floors proves it
# from the sources.

add_library(cadre_flags INTERFACE)
target_compile_features(cadre_flags INTERFACE c_std_17)
target_include_directories(cadre_flags INTERFACE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_compile_definitions(cadre_flags INTERFACE _POSIX_C_SOURCE=200809L)
target_compile_options(cadre_flags INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes
    -Wmissing-prototypes -Wvla -Wwrite-strings -Wcast-qual -Wundef -Wformat=2
    # The bits of every result rest on these two (docs/numerics.md).
    -ffp-contract=off -fno-math-errno
    # Nobody asks which exceptions arose, and results are the same: so a loop with a
    # choice in it needs no masks.
    -fno-trapping-math
    -fvisibility=hidden -fno-omit-frame-pointer)
if(CADRE_WERROR)
    target_compile_options(cadre_flags INTERFACE -Werror)
endif()
if(CADRE_SANITIZE)
    target_compile_options(cadre_flags INTERFACE
        -fsanitize=${CADRE_SANITIZE} -fno-sanitize-recover=all)
    # For tests alone: they are more patient then.
    target_compile_definitions(cadre_flags INTERFACE CADRE_SANITIZED=1)
    target_link_options(cadre_flags INTERFACE -fsanitize=${CADRE_SANITIZE})
endif()
if(CADRE_FUZZ)
    target_compile_options(cadre_flags INTERFACE -O1 -fsanitize=fuzzer-no-link)
endif()
# Our own mistakes are asserted in every build but the release.
target_compile_definitions(cadre_flags INTERFACE
    $<$<CONFIG:Debug>:CADRE_ASSERTIONS=1>)

# Rooms collect here until cadre_link_libraries() makes the library of them.
function(cadre_library name)
    set_property(GLOBAL PROPERTY ${name}_rooms "")
endfunction()

function(cadre_room name)
    cmake_parse_arguments(ROOM "" "LIBRARY" "SOURCES;LINK" ${ARGN})
    add_library(room_${name} OBJECT ${ROOM_SOURCES})
    set_target_properties(room_${name} PROPERTIES
        C_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
    target_link_libraries(room_${name}
        PUBLIC cadre_flags Threads::Threads ${ROOM_LINK})
    set_property(GLOBAL APPEND PROPERTY ${ROOM_LIBRARY}_rooms room_${name})
endfunction()

# Two shared libraries for users, with public symbols only, and one archive for
# our own tests, which sees everything.
function(cadre_link_libraries)
    get_property(core GLOBAL PROPERTY cadre_rooms)
    get_property(nn GLOBAL PROPERTY cadre_nn_rooms)

    # libcadre_nn rests on libcadre's inner headers, so both live in one file
    # for whoever takes libcadre_nn; libcadre alone has no compute library.
    add_library(cadre SHARED)
    add_library(cadre_nn SHARED)
    add_library(cadre_testing STATIC)
    foreach(room ${core})
        target_link_libraries(cadre PRIVATE ${room})
    endforeach()
    foreach(room ${core} ${nn})
        target_link_libraries(cadre_nn PRIVATE ${room})
        target_link_libraries(cadre_testing PUBLIC ${room})
    endforeach()
    foreach(library cadre cadre_nn)
        set_target_properties(${library} PROPERTIES
            LINKER_LANGUAGE C
            VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
            LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
        target_include_directories(${library} INTERFACE
            $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
            $<INSTALL_INTERFACE:include>)
    endforeach()
    set_target_properties(cadre_testing PROPERTIES LINKER_LANGUAGE C)
endfunction()

# cadre_test(NAME SOURCES files... LABELS labels... [TIMEOUT seconds])
#
# A test program of cmocka, one CTest test.  Where ranks die and the others are
# timed ("fault"), no other test runs beside it.
function(cadre_test name)
    cmake_parse_arguments(TEST "" "TIMEOUT" "SOURCES;LABELS" ${ARGN})
    add_executable(test_${name} ${TEST_SOURCES})
    set_target_properties(test_${name} PROPERTIES C_EXTENSIONS OFF)
    target_link_libraries(test_${name} PRIVATE cadre_test_support)
    add_test(NAME ${name} COMMAND test_${name})
    if(NOT TEST_TIMEOUT)
        set(TEST_TIMEOUT 120)
    endif()
    set_tests_properties(${name} PROPERTIES
        LABELS "${TEST_LABELS}" TIMEOUT ${TEST_TIMEOUT} SKIP_RETURN_CODE 77)
    if(fault IN_LIST TEST_LABELS)
        set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
    endif()
endfunction()
