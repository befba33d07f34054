//! What a person names: a claim, volume or pod, with or without kind and namespace.

use crate::Error;
use crate::api::Api;
use crate::gather;
use crate::objects::{ClaimRecord, PodRecord, VolumeRecord};
use diskvitals_text::echo::echo;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Pod,
    Claim,
    Volume,
}

/// `pvc/data`, `shop/data`, `data`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub kind: Option<Kind>,
    pub namespace: Option<String>,
    pub name: String,
}

pub(crate) fn parse(text: &str) -> Name {
    let (kind, rest) = match text.split_once('/') {
        Some((word, rest)) => match kind(word) {
            Some(kind) => (Some(kind), rest),
            None => (None, text),
        },
        None => (None, text),
    };
    let (namespace, name) = match rest.split_once('/') {
        Some((namespace, name)) => (Some(namespace.to_owned()), name),
        None => (None, rest),
    };
    Name { kind, namespace, name: name.to_owned() }
}

/// As kubectl calls the kinds.
fn kind(word: &str) -> Option<Kind> {
    match word {
        "pod" | "pods" | "po" => Some(Kind::Pod),
        "pvc" | "persistentvolumeclaim" | "persistentvolumeclaims" => Some(Kind::Claim),
        "pv" | "persistentvolume" | "persistentvolumes" => Some(Kind::Volume),
        _ => None,
    }
}

pub(crate) enum Found {
    Pod(PodRecord),
    Claim(ClaimRecord),
    Volume(VolumeRecord),
}

/// The one thing of this name. None: nothing has it. What cannot be read may have it, and is said.
pub(crate) async fn find(api: &Api, text: &str) -> Result<Option<Found>, Error> {
    let name = parse(text);
    let namespace = name.namespace.as_deref().unwrap_or(&api.namespace);
    let is_asked = |kind| name.kind.is_none_or(|it| it == kind);
    let (mut found, mut unread) = (Vec::new(), Vec::new());
    if is_asked(Kind::Claim) {
        match gather::claim(api, namespace, &name.name).await {
            Ok(claim) => found.extend(claim.map(Found::Claim)),
            Err(why) => unread.push(format!("claims: {why}")),
        }
    }
    if is_asked(Kind::Pod) {
        match gather::pod(api, namespace, &name.name).await {
            Ok(pod) => found.extend(pod.map(Found::Pod)),
            Err(why) => unread.push(format!("pods: {why}")),
        }
    }
    if is_asked(Kind::Volume) && name.namespace.is_none() {
        match gather::volume(api, &name.name).await {
            Ok(volume) => found.extend(volume.map(Found::Volume)),
            Err(why) => unread.push(format!("persistentvolumes: {why}")),
        }
    }
    if found.len() > 1 {
        let names = found.iter().map(|it| match it {
            Found::Pod(pod) => format!("pod/{}", pod.name),
            Found::Claim(claim) => format!("pvc/{}", claim.name),
            Found::Volume(volume) => format!("pv/{}", volume.name),
        });
        let names: Vec<String> = names.collect();
        return Err(Error::Target(format!(
            "`{}` is the name of several things: {}",
            echo(text),
            names.join(", ")
        )));
    }
    match (found.pop(), unread.is_empty()) {
        (Some(found), _) => Ok(Some(found)),
        (None, true) => Ok(None),
        (None, false) => Err(Error::Target(format!(
            "`{}` was not found, and not everything could be read: {}",
            echo(text),
            unread.join("; ")
        ))),
    }
}

pub(crate) fn nothing(api: &Api, text: &str) -> Error {
    Error::Target(format!(
        "there is no claim, volume or pod `{}` (namespace {}; -n chooses another)",
        echo(text),
        api.namespace
    ))
}

/// The PersistentVolumes of the thing, with the claims through which they were found.
pub(crate) async fn volumes(
    api: &Api,
    text: &str,
) -> Result<Vec<(String, Option<ClaimRecord>)>, Error> {
    match find(api, text).await? {
        None => Err(nothing(api, text)),
        Some(Found::Volume(volume)) => Ok(vec![(volume.name, None)]),
        Some(Found::Claim(claim)) => match claim.volume.as_str() {
            "" => Err(Error::Target(format!(
                "claim {}/{} is not bound to a volume",
                claim.namespace, claim.name
            ))),
            volume => Ok(vec![(volume.to_owned(), Some(claim))]),
        },
        Some(Found::Pod(pod)) => of_pod(api, &pod).await,
    }
}

async fn of_pod(api: &Api, pod: &PodRecord) -> Result<Vec<(String, Option<ClaimRecord>)>, Error> {
    let mut volumes = Vec::new();
    for name in &pod.claims {
        let place = format!("claim {}/{name} of the pod", pod.namespace);
        match gather::claim(api, &pod.namespace, name).await {
            Ok(Some(claim)) if !claim.volume.is_empty() => {
                volumes.push((claim.volume.clone(), Some(claim)));
            }
            Ok(Some(_)) => return Err(Error::Target(format!("{place} is not bound to a volume"))),
            Ok(None) => return Err(Error::Target(format!("{place} does not exist"))),
            Err(why) => return Err(Error::Target(format!("{place}: {why}"))),
        }
    }
    match volumes.is_empty() {
        true => Err(Error::Target(format!("pod {}/{} uses no claim", pod.namespace, pod.name))),
        false => Ok(volumes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_have_a_kind_and_a_namespace() {
        let name = |kind, namespace: Option<&str>, name: &str| Name {
            kind,
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        };
        for (text, expected) in [
            ("data", name(None, None, "data")),
            ("shop/data", name(None, Some("shop"), "data")),
            ("pvc/data", name(Some(Kind::Claim), None, "data")),
            ("pod/shop/db-0", name(Some(Kind::Pod), Some("shop"), "db-0")),
            ("pv/pvc-1", name(Some(Kind::Volume), None, "pvc-1")),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }
}
