"""What the text goldens are made from: a training corpus from Python's own documentation, and texts that are hard to tokenize."""
import pydoc_data.topics

FOREIGN = [
    "机器学习模型需要大量的数据来训练。今天天气很好，我们去公园散步吧。", "東京は日本の首都です。カタカナとひらがなと漢字。",
    "한국어 문장을 몇 개 넣어 봅시다. 고양이가 창문 옆에 앉아 있다.", "Привет, мир! Быстрая коричневая лиса прыгает через ленивую собаку.",
    "مرحبا بالعالم، هذه جملة عربية للتجربة.", "שלום עולם, זהו משפט בעברית.", "नमस्ते दुनिया, यह एक हिन्दी वाक्य है।",
    "Ελληνικά γράμματα και λέξεις.", "Ça va? Où est l'été, naïve façade, Übergröße, señor, smörgåsbord.", "🙂🙃😀 🚀🎉 ❤️ 👍🏽",
    "สวัสดีชาวโลก นี่คือประโยคภาษาไทย", "Xin chào thế giới, đây là câu tiếng Việt.", "a photo of a cat sitting on a chair. <image>\n",
]


def training_lines():
    topics = sorted(pydoc_data.topics.topics.items())
    lines = [line for _, text in topics[:40] for line in text.split("\n") if line.strip()]
    return lines[:6000] + FOREIGN * 20


HARD = [
    "", " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", " \n \n ", "Hello world!", " Hello", "Hello ", "  two  spaces  inside  ",
    "line\nbreak\ttab\r\nwindows\rmac", "def f(x):\n    return x**2  # square\n\n\tif x:\n\t\tpass\n", "for (int i = 0; i < n; ++i) { a[i] += b[i]; }",
    "{\"key\": [1, 2.5, null, \"v\\n\"]}", "<html><body class='x'>a &amp; b</body></html>", "naïve café Übergröße ÀÉÎÕÜ ß ẞ ﬁ ﬀ Ǆ",
    "e\u0301 a\u0308 combining, o\u0302\u0323 stacked, A\u030a ring", "\u1e9b\u0323 \u212b \u2126 \u00bd \u2460 ① ㎏ ｆｕｌｌ　ｗｉｄｔｈ", "日本語のテキスト、漢字かな交じり。", "中文没有空格的长句子也要能够正确地切分",
    "한국어 텍스트", "\u1112\u1161\u11ab\u1100\u1173\u11af jamo", "مرحبا بالعالم ١٢٣", "שָׁלוֹם עוֹלָם", "नमस्ते दुनिया क्षत्रिय", "สวัสดีครับ", "Привет, МИР! ёЁ", "ΑΒΓ αβγ ς Σ",
    "🙂", "👩‍👩‍👧‍👦 family", "👍🏽 skin", "🇩🇪🇫🇷 flags", "❤️‍🔥", "1️⃣ keycap", "a🙂b🙃c", "\u00a0nbsp\u00a0between\u00a0", "\u2003em\u2009thin\u200bzero\u3000wide", "\u180emongolian\u180e vowel", "\u0085next\u0085line", "\u2028line\u2029para",
    "\x00nul\x01\x02\x07\x08\x0b\x0c\x1b[0m\x7f", "\x1c\x1d\x1e\x1f separators", "\ufeffbom", "\u202eright to left\u202c", "0", "7", "12345", "1234567890123456789", "3.14159 1,000,000 0x1F 1e-5 2024-05-17", "²³ ½ ⅷ Ⅻ ٣ ৪ 五", " 42", "  42", "a1b22c333d4444", "x  12  y",
    "I'm you're he'll WE'VE it'S they'd can't o'clock 'tis ’s", "I'ſ", "don't'll", "!!! ??? ... --- *** ___ === ###", " !", "  !", "a!\n\nb?\r\n\r\nc", "$100 €5 £3 ¥9 50% #tag @user a&b c|d ~e^f", "http://example.com/path?query=1&b=%20#frag", "user@example.com", "C:\\Windows\\System32", "/usr/local/bin:/usr/bin",
    "snake_case camelCase PascalCase kebab-case SCREAMING_CASE", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "supercalifragilisticexpialidocious" * 8, " " * 40, " " * 17 + "x" + " " * 23, "\n" * 9, "\t" * 5 + "x", "a" + "\u0301" * 12,
    "▁", "▁▁", "a▁b", "▁Hello", " ▁x", "<0x41>", "<0x0A><0xFF>", "Ġ", "ĠHello Ċ", "<s>", "</s>", "<unk>", "<s>Hello</s>", "<s> Hello </s> world", "</s></s>", "a</s>b", "a </s> b", "\n</s>\n", "</s", "< /s>", "<<s>>", "<s >", "Hello<s>", "<|endoftext|>", "<|im_start|>user\nhi<|im_end|>\n", "<|im_start|>", "<|im_end", "a<|im_end|>b <|im_end|> c\n<|im_end|>\nd",
    "<image>", "<image>\nWhat is this?", "USER: <image>\nWhat? ASSISTANT: Yes.</s>", "[INST] hi [/INST] ok </s>", "<mask>", "x <mask> y", "x  <mask>  y", "<tool>", "a <tool> b", "<tool>s", "word", "words", "a word b", "sword wordy", "é</s>é", "🙂</s>🙂", "</s>日本",
    "Mixed 日本語 and English и русский, 123 مرحبا 🙂 end.", "\u0600\u0601 arabic signs", "\U0001F1E6", "\U000E0041 tag", "\u0e33 \u0eb3", "İstanbul ıI ǅ", "\ud7a3\uac00", "\U0002F800 compat \uf900", "ﷺ ligature", "\u0344\u0340", "The quick brown fox jumps over the lazy dog. " * 3,
]
