//! Capability probes: 23 questions with one right answer each, in 16 categories.

use std::sync::LazyLock;

use regex::Regex;

/// A probe.
pub(crate) struct Probe {
    pub(crate) id: &'static str,
    pub(crate) category: &'static str,
    pub(crate) prompt: &'static str,
    /// The right answer, for people.
    pub(crate) expected: &'static str,
    /// Pattern that a right response matches, case-insensitive.
    right: &'static str,
}

macro_rules! probes {
    ($($id:literal $category:literal: $prompt:literal => $expected:literal, $right:literal;)+) => {
        /// All probes, in their order.
        pub(crate) static PROBES: &[Probe] = &[$(Probe {
            id: $id, category: $category, prompt: $prompt, expected: $expected, right: $right,
        }),+];
    };
}
probes! {
    "math_01" "arithmetic": "What is 236 times 47? End with the number." => "11092", r"\b11[ ,.]?092\b";
    "math_02" "arithmetic":
        "Nine notebooks cost 2.35 euros each. You pay with a 50 euro note. How much change is due?"
        => "28.85 euros", r"\b28[.,]85\b";
    "math_03" "algebra": "Solve 5x - 9 = 2x + 12 for x." => "x = 7", r"\b(?:7|seven)\b";
    "math_04" "algebra": "Let g(x) = 3x^2 - 4x + 2. What is g(5)?" => "57", r"\b57\b";
    "math_05" "probability":
        "An urn has 4 white, 3 black and 5 grey marbles. One is drawn at random. How probable is it that it \
         is black? Give a fraction."
        => "1/4", r"1\s*/\s*4|3\s*/\s*12|\b0?[.,]25\b|\b25\s*%|\\frac\{1\}\{4\}";
    "math_06" "geometry":
        "What is the area of a circle whose radius is 5 cm, to one decimal place?"
        => "78.5 square centimetres", r"\b78[.,]5|\b25\s*(?:π|pi)\b";
    "math_07" "sequences": "Which number follows: 5, 11, 23, 47?" => "95", r"\b95\b";
    "math_08" "percentages":
        "A coat costs 240 euros. Its price falls by 25 %, and the new price rises by 10 %. What does it cost \
         then?"
        => "198 euros", r"\b198\b";
    "logic_01" "deduction":
        "Every violinist reads music. Nobody in this room reads music. Is there a violinist in this room? \
         Why or why not?"
        => "No", r"\bno\b";
    "logic_02" "deduction":
        "When the alarm rings, the dog barks. The dog barks. Does it follow that the alarm rings, and why?"
        => "No: the dog may bark for another reason", r"\bno\b|\bnot (?:necessarily|follow)|\bcannot\b|\bdoes(?:n't| not)\b|fallacy";
    "logic_03" "deduction":
        "A drawer has 10 grey and 10 blue socks in the dark. How many must you take to be sure of two of the \
         same colour?"
        => "3", r"\b(?:3|three)\b";
    "logic_04" "puzzles":
        "A snail climbs a wall of 10 metres. Each day it climbs 3 metres, and each night it slides back by 2. On \
         which day does it reach the top?"
        => "On day 8", r"\b(?:8|8th|eight|eighth)\b";
    "logic_05" "sets":
        "Of 50 guests 30 drink tea, 25 drink coffee and 12 drink both. How many drink neither?"
        => "7", r"\b(?:7|seven)\b";
    "reason_01" "analogy": "Complete in one word: a pen is to writing as a knife is to ..." => "cutting",
        r"\b(?:cut|cutting|slic(?:e|ing)|carving)\b";
    "reason_02" "causal":
        "A lamp does not light. The bulb works in another lamp, the socket has power, and the lamp is switched \
         on. What is most likely broken?"
        => "The lamp's cable, plug or switch", r"\b(?:cable|cord|wir(?:e|ing)|switch|plug|contact|connection)\b";
    "reason_03" "spatial":
        "You face east. You turn left by 90 degrees, and then by 180 degrees. Which way do you face?"
        => "South", r"\bsouth\b";
    "reason_04" "temporal":
        "A bridge was begun in 1874. It was finished 9 years later and fell 15 years after it was finished. In \
         which year did it fall?"
        => "1898", r"\b1898\b";
    "reason_05" "pattern":
        "With A = 1, B = 2 and so on, a word is worth the sum of its letters. BED is worth 11. What is CAGE \
         worth?"
        => "16", r"\b(?:16|sixteen)\b";
    "code_01" "code":
        "What does this Python program print?\nwords = ['a', 'b', 'c', 'd']\nprint(words[-3:-1])"
        => "['b', 'c']", r#"\[\s*['"]b['"]\s*,\s*['"]c['"]\s*\]"#;
    "code_02" "code":
        "What does this Python program print?\ndef f(n):\n    return 1 if n == 0 else n * f(n - 1)\nprint(f(5))"
        => "120", r"\b120\b";
    "code_03" "code":
        "What goes wrong in this Python program?\ndef first(items):\n    return items[0]\nprint(first([]))"
        => "The list is empty: IndexError", r"IndexError|out of (?:range|bounds)|\bempty\b";
    "word_01" "word":
        "A cyclist leaves at 15 km/h. An hour later a second one leaves from the same place, in the same \
         direction, at 20 km/h. How many hours after the second one left do they meet?"
        => "3 hours", r"\b(?:3|three)\s*(?:hours?|h)\b|^\W*(?:3|three)\W*$|=\s*3\b";
    "word_02" "word":
        "Anna has as many brothers as sisters. Each of her brothers has twice as many sisters as brothers. How \
         many children are there?"
        => "7", r"\b(?:7|seven)\b";
}

static PATTERNS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let compiled = PROBES.iter().map(|it| Regex::new(&format!("(?im){}", it.right)));
    compiled.collect::<Result<_, _>>().expect("patterns of this file")
});

impl Probe {
    /// Whether a response is right. What a model thinks aloud before its answer does not count.
    pub(crate) fn passed(&self, response: &str) -> bool {
        let answer = response.rsplit_once("</think>").map_or(response, |(_, answer)| answer);
        let nth = PROBES.iter().position(|probe| std::ptr::eq(probe, self));
        let pattern = nth.and_then(|nth| PATTERNS.get(nth));
        pattern.is_some_and(|pattern| pattern.is_match(answer))
    }
}

/// The categories, sorted.
pub(crate) fn categories() -> Vec<&'static str> {
    let all: std::collections::BTreeSet<_> = PROBES.iter().map(|probe| probe.category).collect();
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_23_probes_in_16_categories_and_each_takes_its_own_answer_alone() {
        assert_eq!((PROBES.len(), categories().len()), (23, 16));
        for probe in PROBES {
            assert!(probe.passed(probe.expected), "{}", probe.id);
            let thought = format!("<think>{}</think> I do not say.", probe.expected);
            assert!(!probe.passed(&thought), "{}: a thought is not an answer", probe.id);
            for wrong in ["", "I will think about it.", "The answer is 42."] {
                assert!(!probe.passed(wrong), "{} takes `{wrong}`", probe.id);
            }
        }
    }

    #[test]
    fn a_question_repeated_is_no_answer() {
        for probe in PROBES {
            assert!(!probe.passed(probe.prompt), "{}: {}", probe.id, probe.prompt);
        }
    }
}
