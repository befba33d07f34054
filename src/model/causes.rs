//! Prints an error with its causes as one line, for logs, reports and pipes.

pub fn with_causes(error: &dyn std::error::Error) -> String {
    // The trait is not imported: method resolution would choose the `source` of the reference,
    // which does not live long enough.
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_is_named_from_the_outermost_on() {
        #[derive(Debug, thiserror::Error)]
        #[error("{0}")]
        struct Link(&'static str, #[source] Option<Box<Link>>);
        let error = Link(
            "a",
            Some(Box::new(Link("b", Some(Box::new(Link("c", None)))))),
        );
        assert_eq!(with_causes(&error), "a: b: c");
        assert_eq!(with_causes(&Link("alone", None)), "alone");
    }
}
