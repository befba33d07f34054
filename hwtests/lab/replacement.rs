//! A drive of an md array is replaced as `diskvitals replace` says, step by step, and the wrong one is
//! pulled once.

use std::time::Duration;

use serde_json::Value;

use crate::lab::context::Context;
use crate::lab::drives;

const AT: &str = "/mnt/replaced";
/// In which a person must hear that it was the wrong drive.
const AT_ONCE: Duration = Duration::from_secs(10);

pub fn of_an_md_member(context: &mut Context) {
    let (old, other, new) = (drives::REPLACED, drives::REPLACED_OTHER, drives::REPLACED_NEW);
    context.add(&[old, other, new]);
    context.sh(&format!(
        "mdadm --create /dev/md7 --run --level=1 --raid-devices=2 --metadata=1.2 --bitmap=internal --size=64M {} {} && mdadm --wait /dev/md7 || true",
        old.link(),
        other.link()
    ));
    context.mounted("/dev/md7", "ext4", AT);
    refresh(context);

    // Nothing has been written since: md itself does not know yet.
    context.guest.unplug(&other);
    let wrong = context.until_within(AT_ONCE, "the wrong drive is named", |context| {
        Some(next(context)).filter(|step| step["kind"] == "KIND_PUT_BACK")
    });
    let text = wrong["text"].as_str().unwrap_or_default();
    assert!(text.contains("REPLACE5B"), "{text}");
    assert!(wrong["commands"].as_array().is_none_or(Vec::is_empty), "{wrong}");
    context.sh(&format!("dd if=/dev/zero of={AT}/a bs=64k count=4 conv=fsync"));
    let target = context.guest.free_scsi_target();
    context.guest.plug(&other, target);
    context.expect_cleared(other.id, "DriveMissing");
    context.try_sh(
        "mdadm --manage /dev/md7 --remove failed; mdadm --manage /dev/md7 --remove detached",
    );

    let typed = follow(context, "KIND_PULL");
    // udev adds a member that is back by itself, if it is faster.
    let typed: Vec<&String> = typed.iter().filter(|it| !it.contains("--re-add")).collect();
    let commands = ["--add", "--replace", "--remove"];
    assert_eq!(typed.len(), commands.len(), "{typed:?}");
    for (typed, expected) in typed.iter().zip(commands) {
        assert!(typed.contains(expected), "{typed}");
    }
    context.guest.unplug(&old);
    context.until("the replacement is done", |context| {
        (next(context)["kind"] == "KIND_DONE").then_some(())
    });
    context.sh("grep -q '\\[UU\\]' /proc/mdstat");
    context.unmount(AT);
    context.sh("mdadm --stop /dev/md7");
}

/// Types what it says until it says this; returns what was typed.
fn follow(context: &mut Context, end: &str) -> Vec<String> {
    let mut typed = Vec::new();
    let what = format!("the steps lead to {end}");
    context.until(&what, |context| {
        refresh(context);
        let step = next(context);
        let commands = step["commands"].as_array().cloned().unwrap_or_default();
        for command in commands.iter().filter_map(Value::as_str) {
            println!("      $ {command}");
            // The state may have moved on: then the next answer is another step.
            if context.try_sh(command).status == 0 {
                typed.push(command.to_owned());
            }
        }
        context.try_sh("udevadm settle; mdadm --wait /dev/md7");
        (step["kind"] == end).then_some(())
    });
    typed
}

/// The exit status says whether the drive can be pulled.
fn next(context: &mut Context) -> Value {
    let (old, new) = (drives::REPLACED.id, drives::REPLACED_NEW.id);
    let command = format!("/usr/local/bin/diskvitals replace {old} --with {new} -o json");
    let output = context.try_sh(&command);
    let answer: Value = serde_json::from_str(&output.stdout)
        .unwrap_or_else(|error| panic!("{command}: {error}: {}{}", output.stdout, output.stderr));
    println!("      {} {}", answer["step"]["kind"], answer["step"]["text"]);
    answer["step"].clone()
}

fn refresh(context: &mut Context) {
    context.guest.ask("refresh").unwrap_or_else(|error| panic!("{error}"));
}
