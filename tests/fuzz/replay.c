// SPDX-License-Identifier: Apache-2.0
//
// Feeds the files of folders to a fuzz target, in builds without libFuzzer.
//
//     fuzz_frames -runs=0 FOLDER...        # the option is libFuzzer's

#include "fuzz.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_BYTES = 1 << 20 };

static void replay_file(const char *folder, const char *name)
{
    static uint8_t content[MOST_BYTES];
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *stream = fopen(path, "rb");
    if (stream == NULL) {
        perror(path);
        exit(1);
    }
    size_t nbytes = fread(content, 1, sizeof(content), stream);
    fclose(stream);
    // Not from the large buffer, so that sanitizers see where the input ends.
    uint8_t *data = malloc(nbytes > 0 ? nbytes : 1);
    FUZZ_CHECK(data != NULL);
    for (size_t i = 0; i < nbytes; i++) {
        data[i] = content[i];
    }
    printf("%s\n", path);
    fflush(stdout); // the last name is that of the input that fails
    (void)LLVMFuzzerTestOneInput(data, nbytes);
    free(data);
}

static int replay_folder(const char *folder)
{
    int n_files = 0;
    DIR *files = opendir(folder);
    if (files == NULL) {
        perror(folder);
        exit(1);
    }
    for (const struct dirent *f = readdir(files); f != NULL;
         f = readdir(files)) {
        if (f->d_name[0] != '.') {
            replay_file(folder, f->d_name);
            n_files++;
        }
    }
    closedir(files);
    return n_files;
}

int main(int argc, char **argv)
{
    int n_files = 0;
    for (int i = 1; i < argc; i++) {
        n_files += argv[i][0] == '-' ? 0 : replay_folder(argv[i]);
    }
    printf("%d inputs\n", n_files);
    return n_files > 0 ? 0 : 1;
}
