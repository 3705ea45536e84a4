//! `verify --all` of the models that `posenc.toml` names.

use serde_json::Value;

use crate::run::{Folder, Ran, binary, ran};

const MODEL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../fixtures/mini/rope/model.onnx"
);

/// A folder with a model and this text as `posenc.toml`.
fn project(text: &str) -> Folder {
    let folder = Folder::new();
    folder.file("m.onnx", std::fs::read(MODEL).unwrap());
    folder.file("posenc.toml", text);
    folder
}

fn within(folder: &Folder, words: &[&str]) -> Ran {
    ran(binary()
        .current_dir(folder.path())
        .args(words)
        .output()
        .unwrap())
}

const TWO: &str = r#"
[verify]
provider = ["tract"]
lengths = [8]

[[model]]
path = "m.onnx"

[[model.rewrite]]
output = "yarn.onnx"
scale = "yarn"
factor = 4
original-length = 64

[[model.rewrite]]
output = "alibi.onnx"
to = "alibi"
"#;

#[test]
fn every_model_and_rewrite_is_verified() {
    let folder = project(TWO);
    let words = ["rewrite", "m.onnx", "-o", "yarn.onnx", "--scale", "yarn"];
    let more = ["--factor", "4", "--original-length", "64"];
    let made = within(&folder, &[&words[..], &more].concat());
    assert_eq!(made.code, 0, "{}", made.err);

    let all = within(&folder, &["verify", "--all", "--json", "--junit", "v.xml"]);
    assert_eq!(all.code, 0, "{}{}", all.out, all.err);
    let found: Value = serde_json::from_str(&all.out).unwrap();
    let models = found["models"].as_array().unwrap();
    let paths: Vec<&str> = models.iter().map(|m| m["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["m.onnx", "yarn.onnx", "alibi.onnx"]);
    assert_eq!(models[1]["original"], "m.onnx");
    let of_file = |at: usize| {
        let sites = models[at]["report"]["sites"].as_array().unwrap();
        sites.iter().any(|site| site["quantity"] == "rewrite")
    };
    assert!(of_file(1), "the file is compared");
    assert!(!of_file(2), "there is no file");
    assert!(!folder.names().contains(&"alibi.onnx".to_owned()));
    let xml = std::fs::read_to_string(folder.place("v.xml")).unwrap();
    for suite in ["m.onnx", "yarn.onnx", "alibi.onnx"] {
        assert!(
            xml.contains(&format!("<testsuite name=\"{suite}\"")),
            "{xml}"
        );
    }
    assert!(xml.contains("failures=\"0\""), "{xml}");

    let quiet = within(&folder, &["verify", "--all", "--quiet"]);
    assert_eq!((quiet.code, &*quiet.out), (0, ""), "{}", quiet.err);
}

#[test]
fn one_page_has_a_summary_and_a_chapter_for_each_model() {
    let folder = project(TWO);
    let page = |more: &[&str], code: i32| {
        let words = ["verify", "--all", "--report", "v.html"];
        let all = within(&folder, &[&words[..], more].concat());
        assert_eq!(all.code, code, "{}{}", all.out, all.err);
        assert!(all.err.contains("wrote v.html"), "{}", all.err);
        std::fs::read_to_string(folder.place("v.html")).unwrap()
    };
    let text = page(&[], 0);
    assert!(
        text.contains("all 3 models are as they should be"),
        "{text}"
    );
    let titles = ["m.onnx", "yarn.onnx from m.onnx", "alibi.onnx from m.onnx"];
    for (at, title) in titles.iter().enumerate() {
        let at = at + 1;
        let link = format!("<a href=\"#model-{at}\">{title}</a>");
        let chapter = format!("<section class=\"chapter\" id=\"model-{at}\">\n<h2>{title}</h2>");
        assert!(
            text.contains(&link) && text.contains(&chapter),
            "{title}: {text}"
        );
    }
    // Models that are made in memory are drawn as files are.
    let last = text.split("<section").nth(3).unwrap();
    assert!(
        last.contains("alibi: bias by distance of alibi.onnx"),
        "{last}"
    );

    folder.file("posenc.toml", TWO.replace("m.onnx", "gone.onnx"));
    let text = page(&[], 3);
    assert!(
        text.contains("3 of 3 models are not as they should be"),
        "{text}"
    );
    assert!(text.contains("<p class=\"fail\">gone.onnx"), "{text}");
}

#[test]
fn a_rewrite_can_have_settings_of_its_own() {
    let own = "[model.rewrite.verify]\nlengths = [4]\natol = 0.5\n";
    let folder = project(&format!("{TWO}\n{own}"));
    let all = within(&folder, &["verify", "--all", "--json"]);
    assert_eq!(all.code, 0, "{}{}", all.out, all.err);
    let found: Value = serde_json::from_str(&all.out).unwrap();
    let lengths = |model: usize| -> Vec<u64> {
        let runs = found["models"][model]["report"]["runs"].as_array().unwrap();
        let usual = runs.iter().filter(|run| run["padding"] == "right");
        usual.map(|run| run["length"].as_u64().unwrap()).collect()
    };
    assert_eq!((lengths(1), lengths(2)), (vec![8], vec![4]));
    // The provider is that of the project.
    let runtime = &found["models"][2]["report"]["runs"][0]["runtime"];
    assert_eq!(runtime, "tract");
}

#[test]
fn a_file_that_the_rewrite_does_not_make_fails() {
    let folder = project(TWO);
    let words = ["rewrite", "m.onnx", "-o", "yarn.onnx", "--scale", "yarn"];
    let more = ["--factor", "8", "--original-length", "64"];
    let made = within(&folder, &[&words[..], &more].concat());
    assert_eq!(made.code, 0, "{}", made.err);
    let all = within(&folder, &["verify", "--all", "--quiet", "--junit", "v.xml"]);
    assert_eq!(all.code, 1, "{}{}", all.out, all.err);
    assert!(all.out.contains("yarn.onnx  rewrite"), "{}", all.out);
    assert!(all.out.contains("1 of 3 models"), "{}", all.out);
    assert!(!all.out.contains("alibi.onnx"), "{}", all.out);
    let xml = std::fs::read_to_string(folder.place("v.xml")).unwrap();
    assert!(xml.contains("yarn.onnx rewrite"), "{xml}");
    assert!(xml.contains("<failure"), "{xml}");
}

#[test]
fn a_model_that_cannot_be_read_leaves_the_others() {
    let folder = project(&format!("{TWO}\n[[model]]\npath = \"none.onnx\"\n"));
    let all = within(&folder, &["verify", "--all", "--junit", "v.xml"]);
    assert_eq!(all.code, 3, "{}{}", all.out, all.err);
    assert!(all.out.contains("none.onnx: No such file"), "{}", all.out);
    assert!(all.out.contains("1 of 4 models"), "{}", all.out);
    let xml = std::fs::read_to_string(folder.place("v.xml")).unwrap();
    assert!(xml.contains("<error"), "{xml}");
}

#[test]
fn what_is_wrong_in_the_file_is_said() {
    let empty = Folder::new();
    within(&empty, &["verify", "--all"]).failed(2, "no file");
    let model = "[[model]]\npath = \"m.onnx\"\n";
    for (text, part) in [
        ("", "no [[model]]"),
        ("[[model]]\npaht = \"m.onnx\"\n", "paht"),
        ("[verify]\nlength = [1]\n", "length"),
        (
            &format!("{model}[[model.rewrite]]\noutput = \"o\"\nverify = {{ atoll = 1 }}\n"),
            "atoll",
        ),
        ("[verify]\nlengths = [0]\n", "above 0"),
        ("[verify]\natol = inf\n", "finite"),
        ("[verify]\nrtol = -1\n", "at least 0"),
        (&format!("{model}{model}"), "m.onnx is named twice"),
        (
            &format!("{model}[[model.rewrite]]\noutput = \"./m.onnx\"\n"),
            "./m.onnx is named twice",
        ),
        (
            &format!("{model}[[model.rewrite]]\noutput = \"none/../m.onnx\"\n"),
            "none/../m.onnx is named twice",
        ),
        (
            &format!("{model}[[model.rewrite]]\noutput = \"\"\n"),
            "no output",
        ),
        (
            &format!("{model}[[model.rewrite]]\noutput = \"o\"\nother = false\n"),
            "other of a rewrite of m.onnx is no flag",
        ),
        (
            &format!("{model}[[model.rewrite]]\noutput = \"o\"\nsort = 1\n"),
            "true or false",
        ),
        (
            &format!("{model}[[model.rewrite]]\nscale = \"yarn\"\n"),
            "output",
        ),
        (
            &format!("{model}[[model.rewrite]]\noutput = \"o\"\nfacter = 4\n"),
            "facter of a rewrite of m.onnx is no flag",
        ),
        (
            &format!("{model}[[model.rewrite]]\noutput = \"o\"\nscale = \"jarn\"\n"),
            "jarn",
        ),
        (
            &format!("{model}[[model.rewrite]]\noutput = \"o\"\nscale = 1979-05-27\n"),
            "scale",
        ),
        (
            &format!("{model}[[model.rewrite]]\noutput = \"o\"\ndry-run = true\n"),
            "dry-run",
        ),
    ] {
        let all = within(&project(text), &["verify", "--all"]);
        all.failed(2, text);
        assert!(all.err.contains("posenc.toml"), "{text}: {}", all.err);
        assert!(all.err.contains(part), "{text}: {}", all.err);
    }
    let none = within(&Folder::new(), &["verify", "--all"]);
    none.failed(2, "no posenc.toml");
    assert!(none.err.contains("is not in this folder"), "{}", none.err);
}

#[test]
fn values_of_flags_are_as_on_the_command_line() {
    let rewrite =
        "[[model]]\npath = \"m.onnx\"\n[[model.rewrite]]\noutput = \"o.onnx\"\nto = \"alibi\"\n";
    let roles = "input-role = [\"input_ids=content\", \"attention_mask=padding\"]\n";
    for (more, flag, code) in [
        ("bidirectional = false\n", "--bidirectional=false", 0),
        ("bidirectional = false\n", "--bidirectional=true", 1),
        ("bidirectional = true\n", "--bidirectional=true", 0),
        (roles, "--sort", 1),
    ] {
        let settings = "[verify]\nprovider = [\"tract\"]\nlengths = [8]\n";
        let folder = project(&format!("{settings}{rewrite}{more}"));
        let words = ["rewrite", "m.onnx", "-o", "o.onnx", "--to", "alibi", flag];
        assert_eq!(within(&folder, &words).code, 0, "{flag}");
        let all = within(&folder, &["verify", "--all"]);
        let differs = all.out.contains("o.onnx is not what the rewrite makes");
        assert_eq!(
            (all.code, differs),
            (code, code == 1),
            "{more}{flag}: {}{}",
            all.out,
            all.err
        );
    }
}

#[test]
fn no_report_replaces_what_is_read() {
    let folder = project(TWO);
    let before = std::fs::read(folder.place("m.onnx")).unwrap();
    for words in [
        &["inspect", "m.onnx", "--report", "m.onnx"][..],
        &["verify", "m.onnx", "--report", "./m.onnx"],
        &["verify", "m.onnx", "--junit", "m.onnx"],
        &["verify", "--all", "--junit", "posenc.toml"],
        &["verify", "--all", "--junit", "m.onnx"],
        &["verify", "--all", "--report", "posenc.toml"],
        &["verify", "--all", "--report", "m.onnx"],
        &[
            "verify",
            "--all",
            "--report",
            "new.html",
            "--junit",
            "./new.html",
        ],
        &[
            "verify", "m.onnx", "--report", "new.html", "--junit", "new.html",
        ],
    ] {
        within(&folder, words).failed(2, words[0]);
        assert_eq!(std::fs::read(folder.place("m.onnx")).unwrap(), before);
    }
    let text = std::fs::read_to_string(folder.place("posenc.toml")).unwrap();
    assert_eq!(text, TWO);
}
