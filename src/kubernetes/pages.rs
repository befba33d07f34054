//! Lists in pages.
//!
//! In: a call for one page. Out: every object of the list, page by page, and whether the list was
//! begun anew because its version had expired. No I/O but the given call.

use std::future::Future;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::core::params::ListParams;

use crate::api_error::CallError;

/// Objects of one page: a page of pods takes some MiB.
pub const PAGE_SIZE: u32 = 500;
/// Bound of a server that never comes to an end: five million objects.
const MAX_PAGES: usize = 10_000;
/// A list that expires while it is read is begun anew so often.
const MAX_RESTARTS: usize = 2;

pub struct Page<T> {
    pub metadata: ListMeta,
    pub items: Vec<T>,
}

pub enum ListError {
    Call(CallError),
    /// The answers make no list.
    Malformed(String),
}

/// What follows when the list's version has been compacted away (410 Gone).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnExpiry {
    /// An error: the caller needs all objects as they were at one time.
    Fail,
    /// The rest of the present version, if the server offers it, else the list from its begin.
    Continue,
}

/// `keep` gets the objects of each page, and whether they are the first ones of a list that was
/// begun anew.
pub async fn read_pages<T, F>(
    selected: ListParams,
    on_expiry: OnExpiry,
    fetch: impl Fn(ListParams) -> F,
    mut keep: impl FnMut(Page<T>, bool),
) -> Result<(), ListError>
where
    F: Future<Output = Result<Page<T>, ListError>>,
{
    let mut parameters = selected.limit(PAGE_SIZE);
    let (mut restarts, mut restarted) = (0, false);
    for _ in 0..MAX_PAGES {
        let page = match fetch(parameters.clone()).await {
            Ok(page) => page,
            Err(ListError::Call(CallError::Kube(kube::Error::Api(status))))
                if status.code == 410 && on_expiry == OnExpiry::Continue =>
            {
                // The list's version has been compacted away. The server offers to go on with
                // the present version: what was there all the time is still complete.
                let token = status.metadata.as_ref().and_then(|it| it.continue_.clone());
                match token.filter(|token| !token.is_empty()) {
                    Some(token) => parameters.continue_token = Some(token),
                    None if restarts < MAX_RESTARTS => {
                        parameters.continue_token = None;
                        restarted = true;
                    }
                    None => return Err(ListError::Call(CallError::Kube(kube::Error::Api(status)))),
                }
                restarts += 1;
                if restarts > PAGE_SIZE as usize {
                    let why = "the list expires again and again".to_owned();
                    return Err(ListError::Malformed(why));
                }
                continue;
            }
            Err(error) => return Err(error),
        };
        let next = page.metadata.continue_.clone().filter(|token| !token.is_empty());
        keep(page, std::mem::take(&mut restarted));
        match next {
            Some(token) => parameters.continue_token = Some(token),
            None => return Ok(()),
        }
    }
    Err(ListError::Malformed(format!("the list has more than {MAX_PAGES} pages")))
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use kube::core::Status;

    use super::*;

    /// The objects that are read from these answers, and the tokens that were sent.
    async fn read(
        on_expiry: OnExpiry,
        answers: Vec<Result<(&'static str, u32), Option<&'static str>>>,
    ) -> (Result<Vec<u32>, u16>, Vec<Option<String>>) {
        let (tokens, number) = (RefCell::new(Vec::new()), Cell::new(0));
        let fetch = |parameters: ListParams| {
            tokens.borrow_mut().push(parameters.continue_token);
            let answer = answers[number.replace(number.get() + 1)];
            async move {
                match answer {
                    Ok((next, item)) => Ok(Page {
                        metadata: ListMeta {
                            continue_: Some(next.to_owned()),
                            ..ListMeta::default()
                        },
                        items: vec![item],
                    }),
                    Err(next) => {
                        let mut status = Status::failure("expired", "Expired").with_code(410);
                        status.metadata = next.map(|next| {
                            let continue_ = Some(next.to_owned());
                            kube::core::ListMeta { continue_, ..kube::core::ListMeta::default() }
                        });
                        Err(ListError::Call(CallError::Kube(kube::Error::Api(status.boxed()))))
                    }
                }
            }
        };
        let mut kept = Vec::new();
        let ended = read_pages(ListParams::default(), on_expiry, fetch, |page, restarted| {
            if restarted {
                kept.clear();
            }
            kept.extend(page.items);
        })
        .await;
        let result = match ended {
            Ok(()) => Ok(kept),
            Err(ListError::Call(CallError::Kube(kube::Error::Api(status)))) => Err(status.code),
            Err(_) => Err(0),
        };
        (result, tokens.into_inner())
    }

    fn token(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[tokio::test]
    async fn a_list_that_expires_goes_on_or_begins_anew_only_for_a_caller_that_allows_it() {
        let pages = [Ok(("a", 1)), Err(Some("b")), Ok(("", 2))];
        assert_eq!(
            read(OnExpiry::Continue, pages.to_vec()).await,
            (Ok(vec![1, 2]), vec![None, token("a"), token("b")])
        );
        assert_eq!(read(OnExpiry::Fail, pages.to_vec()).await, (Err(410), vec![None, token("a")]));
        let anew = [Ok(("a", 1)), Err(None), Ok(("", 2))];
        assert_eq!(
            read(OnExpiry::Continue, anew.to_vec()).await,
            (Ok(vec![2]), vec![None, token("a"), None])
        );
        let (result, tokens) = read(OnExpiry::Continue, vec![Err(None); 9]).await;
        assert_eq!((result, tokens.len()), (Err(410), MAX_RESTARTS + 1));
    }
}
