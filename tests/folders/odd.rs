//! Folders and outputs that are not as they should be, and interrupts.

use super::*;

#[test]
fn folders_without_models_are_refused() {
    let site = Site::new();
    for command in ["inspect", "verify"] {
        let ran = site.run(command, &[]);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(
            ran.stderr
                .contains("there is no model (*.onnx) in this folder")
        );
    }
    site.refuses(&YARN, 2, "there is no model (*.onnx) in this folder");
    site.put("config.json", "{}");
    site.put(".git/model.onnx", "x");
    site.refuses(&YARN, 2, "there is no model (*.onnx) in this folder");
}

#[test]
fn an_output_has_to_be_a_new_folder() {
    let site = Site::of_llama();
    let input = site.input().display().to_string();
    let inside = format!("{input}/new");
    let absent = format!("{input}-no/new");
    let cases: [(&[&str], &str); 8] = [
        (&[], "the input is a folder; give a new folder with -o"),
        (&["-o", "-"], "not written to stdout"),
        (&["-o", &input], "the output is the input"),
        (&["-o", &inside], "is in the folder that is read"),
        (&["-o", &absent], "make it first"),
        (&["--in-place"], "a folder is not changed in place"),
        (
            &["-o", "new", "--external-data", "keep"],
            "data cannot be kept where it is",
        ),
        (
            &["-o", "new", "--only", "no*"],
            "matches none of its models",
        ),
    ];
    for (flags, said) in cases {
        let ran = site.run("rewrite", &[&YARN, flags].concat());
        assert_eq!(ran.code, 2, "{flags:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{flags:?}: {}", ran.stderr);
        site.holds_the_input_alone();
    }
    fs::create_dir(site.output()).unwrap();
    fs::write(site.output().join("precious"), "x").unwrap();
    let ran = site.rewrite(&YARN);
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.contains("is there already and not empty"),
        "{}",
        ran.stderr
    );
    assert_eq!(names(&site.output()), ["precious"]);
    // An empty one is taken.
    fs::remove_file(site.output().join("precious")).unwrap();
    assert_eq!(site.rewrite(&YARN).code, 0);
    assert!(site.output().join("onnx/model.onnx").is_file());
    assert_eq!(
        fs::read_dir(site.0.path()).unwrap().count(),
        2,
        "something was left"
    );
}

#[test]
fn flags_for_folders_are_refused_for_a_file_and_the_other_way_round() {
    let model = Fixture::named("llama/torchscript")
        .model()
        .display()
        .to_string();
    for command in ["inspect", "rewrite"] {
        let ran = binary::run([command, &model, "--only", "*"]);
        assert_eq!(ran.code, 2, "{}", ran.stderr);
        assert!(
            ran.stderr.contains("chooses models of a folder"),
            "{}",
            ran.stderr
        );
    }
    let site = Site::of_llama();
    let ran = site.run("verify", &["--inputs", "inputs.npz"]);
    assert_eq!(ran.code, 2, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("and this is a folder"),
        "{}",
        ran.stderr
    );
    let ran = site.run("verify", &[&model]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.contains("give two folders or two models"),
        "{}",
        ran.stderr
    );
}

#[test]
fn inspect_reads_what_can_be_read() {
    let site = Site::of_llama();
    site.put("broken.onnx", "no model");
    let ran = site.run("inspect", &["--json"]);
    assert_eq!(ran.code, 3);
    let found: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(found["models"].as_array().unwrap().len(), 2);
    assert!(
        found["errors"][0]["path"]
            .as_str()
            .unwrap()
            .ends_with("broken.onnx")
    );
    let text = site.run("inspect", &[]);
    assert_eq!(text.code, 3);
    assert!(text.stdout.contains("Not read\n"), "{}", text.stdout);
}

#[cfg(unix)]
#[test]
fn links_out_of_the_folder_and_what_is_no_file_stop_a_rewrite() {
    use std::os::unix::fs::symlink;
    let site = Site::of_llama();
    let link = site.input().join("secret");
    let secret = tempfile::NamedTempFile::new().unwrap();
    symlink(secret.path(), &link).unwrap();
    site.refuses(&YARN, 2, "outside of the folder; put the file in its place");
    fs::remove_file(&link).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(&link).unwrap();
    site.refuses(&YARN, 2, "is neither a file nor a folder");
    drop(socket);
    fs::remove_file(&link).unwrap();
    assert_eq!(site.rewrite(&YARN).code, 0);
}

#[cfg(unix)]
#[test]
fn a_full_disk_is_one_sentence_and_leaves_nothing() {
    use std::process::Command;
    let site = Site::of_llama();
    let limited = |blocks: &str| {
        let mut shell = Command::new("/bin/sh");
        // Files may grow to so many blocks of 512 bytes; what is more is an error, no signal.
        shell.args(["-c", r#"trap "" XFSZ; ulimit -f "$0"; exec "$@""#, blocks]);
        shell.arg(binary::path()).arg("rewrite").arg(site.input());
        shell.arg("-o").arg(site.output()).arg("-q").args(YARN);
        let done = shell.output().unwrap();
        (
            done.status.code(),
            String::from_utf8_lossy(&done.stderr).into_owned(),
        )
    };
    let (code, said) = limited("64");
    assert_eq!(code, Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let place = site.output().join("onnx/model");
    assert!(said.contains(place.to_str().unwrap()), "{said}");
    assert!(!said.contains("/.out."), "{said}");
    site.holds_the_input_alone();
    assert_eq!(limited("65536").0, Some(0));
    assert_eq!(names(&site.output()), names(&site.input()));
}

#[cfg(unix)]
#[test]
fn an_interrupt_while_files_are_written_leaves_nothing() {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};
    let site = Site::of_llama();
    for at in 0..20_000 {
        let name = format!("many/{}/{at}", at % 100);
        site.put(&name, "x");
    }
    let mut seen = 0;
    for (signal, number) in [("-INT", 2), ("-TERM", 15)] {
        let mut child = Command::new(binary::path())
            .arg("rewrite")
            .arg(site.input())
            .arg("-o")
            .arg(site.output())
            .args(YARN)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        while fs::read_dir(site.0.path()).unwrap().count() < 2 {
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "it wrote nothing"
            );
            assert!(child.try_wait().unwrap().is_none(), "it ended too soon");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(20));
        let id = child.id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &id])
                .status()
                .unwrap()
                .success()
        );
        let status = child.wait().unwrap();
        // Where it was done before the signal came, everything is there.
        if status.success() {
            assert_eq!(names(&site.output()), names(&site.input()));
            fs::remove_dir_all(site.output()).unwrap();
        } else {
            assert_eq!(status.signal(), Some(number));
            seen += 1;
        }
        site.holds_the_input_alone();
    }
    assert!(seen > 0, "no signal came in time");
}
