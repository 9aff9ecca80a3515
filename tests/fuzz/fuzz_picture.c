// SPDX-License-Identifier: Apache-2.0
//
// JPEG and PNG files, with what they show in another size.

#include "fuzz.h"

#include "data/augment.h"
#include "data/picture.h"

// The largest picture that is worth the time.
enum { MOST_PIXELS = 1 << 18, SIDE = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    cadre_picture picture = {0};
    cadre_picture spare = {0};
    cadre_resampler resampler = {0};
    cadre_status status = cadre_picture_decode(data, nbytes, &picture, &spare);
    FUZZ_CHECK(status == CADRE_OK || status == CADRE_ERR_CORRUPT);
    if (status == CADRE_OK && picture.width * picture.height < MOST_PIXELS) {
        const cadre_view view = cadre_augment_random(
            picture.width, picture.height, SIDE, nbytes, 0, 0);
        const uint8_t *pixels;
        FUZZ_CHECK(
            cadre_resample(&resampler, &picture, &view, &pixels) == CADRE_OK);
    }
    cadre_resampler_fini(&resampler);
    cadre_picture_fini(&picture);
    cadre_picture_fini(&spare);
    return 0;
}
