#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/tokenizer/ with the library tokenizers (`pip install
tokenizers`): a small vocabulary learned from the first books of the King James
Bible (Debian's bible-kjv) and from the texts below, in GPT-2's two files, and in
references.txt what texts become:

    bytes of the text in hex, and its tokens, separated by blanks
"""

import pathlib
import random
import subprocess
import unicodedata

from tokenizers import ByteLevelBPETokenizer

FOLDER = pathlib.Path(__file__).parents[1] / "tests" / "data" / "tokenizer"
VOCABULARY = 700

TEXTS = (
    "In the beginning God created the heaven and the earth.",
    "I'm sure they'll say it's what we'd've done, isn't it? 'Tis! IT'S 'S",
    "x'''s ''ll 'really 're 'v've 'l",
    "two  spaces, three   spaces,\ttab\t\ttabs\n\nlines \n  \n end  ",
    "   ",
    " ",
    "\n",
    "a\r\nb\r\n\r\n c",
    "no\u00a0break \u00a0 \u2003em\u3000\u3000wide\u200bzero\x85next\x1cfile",
    "1234 5,678.90 x² ½ Ⅷ ٣٤ 12th 3D",
    "Größe, naïve, Ærøskøbing, ΑΒΓ αβγ, Привет мир",
    "日本語のテキスト、漢字かな交じり。中文 한국어",
    "العربية עברית हिन्दी ไทย",
    "🙂🙃 👩‍👩‍👧 e\u0301 🇩🇪",
    "a_b-c+d=e (f) [g] {h} <i> \"j\" #k @l $m %n ^o &p *q ~r `s |t \\u /v",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "and and and the the the LORD LORD LORD begat begat begat",
    "\0\x01\x02 \x7f control",
    "# # ## ### comment # version",
)


def random_texts():
    draw = random.Random(1)
    pools = ("abcdet hansor'", " \t\n\u00a0\u2003", "0123٣½Ⅷ²", ".,;!?'\"-_",
             "éßøñαβγжшя", "漢字仮名", "🙂🙃\u0301\u200d", "'stdmrevl ")
    for _ in range(60):
        yield "".join(draw.choice(draw.choice(pools))
                      for _ in range(draw.randrange(1, 60)))


def bible():
    return subprocess.run(["bible", "-f", "Gen1:1-Lev27:34"], check=True,
                          stdout=subprocess.PIPE, text=True).stdout


def main():
    FOLDER.mkdir(exist_ok=True)
    tokenizer = ByteLevelBPETokenizer()
    lines = bible().splitlines(keepends=True)
    tokenizer.train_from_iterator(
        lines + list(TEXTS) * 20, vocab_size=VOCABULARY, min_frequency=2,
        show_progress=False)
    tokenizer.save_model(str(FOLDER))
    texts = list(TEXTS) + list(random_texts()) + ["".join(lines[:20])]
    with open(FOLDER / "references.txt", "w", encoding="ascii") as out:
        for text in texts:
            assert all(unicodedata.category(c) != "Cn" for c in text)
            tokens = tokenizer.encode(text).ids
            print(text.encode().hex(), *tokens, file=out)


if __name__ == "__main__":
    main()
