//! Judgement: what is wrong, out of what was observed. One function a rule; its doc comment is its specification. Pure, no clock.
