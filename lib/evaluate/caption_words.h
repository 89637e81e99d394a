// Captions as words, the way COCO's evaluation (pycocoevalcap) has them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace vlmtune {

using Words = std::vector<std::string>;

/// Words of the Penn Treebank as Stanford's tokenizer finds them ("a man 's dog is n't"), in lower case and without the
/// punctuation that COCO leaves out. Rules for English as captions and answers have it; rarer ones of the original are left
/// out ("3/4c", file names, "rock 'n roll" and the like may come out otherwise).
Words caption_words(std::string_view text);

}  // namespace vlmtune
