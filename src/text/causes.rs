//! Prints an error with its causes, each once, as one line, for logs, reports and pipes.

pub fn with_causes(error: &dyn std::error::Error) -> String {
    // The trait is not imported: method resolution would choose the `source` of the reference,
    // which does not live long enough.
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        // Errors of some crates repeat their source.
        if text.contains(&cause) { text } else { format!("{text}: {cause}") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_is_named_from_the_outermost_on() {
        #[derive(Debug, thiserror::Error)]
        #[error("{0}")]
        struct Link(&'static str, #[source] Option<Box<Link>>);
        let error = Link("a", Some(Box::new(Link("b", Some(Box::new(Link("c", None)))))));
        assert_eq!(with_causes(&error), "a: b: c");
        assert_eq!(with_causes(&Link("alone", None)), "alone");
        let repeats = Link("a: b", Some(Box::new(Link("b", None))));
        assert_eq!(with_causes(&repeats), "a: b");
    }
}
