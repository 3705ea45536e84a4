//! Lengths of tables, and sizes of images.

use posenc_encodings::kind::Stack;
use posenc_encodings::laws::LawName;
use serde_json::{Value, json};

use super::{change, change_of, fixture, fourfold, scale, with};
use crate::config::images::Images;
use crate::config::lengths::{KEYS, Lengths, Span};
use crate::config::tables::Tables;
use crate::request::{ImageSize, Parameters, Request, ScaleType};

fn to(max_length: usize) -> Parameters {
    Parameters {
        max_length: Some(max_length),
        ..Parameters::default()
    }
}

fn image(height: usize, width: usize) -> Request {
    Request {
        parameters: Parameters {
            image_size: Some(ImageSize { height, width }),
            ..Parameters::default()
        },
        ..Request::default()
    }
}

#[test]
fn a_longer_table_is_a_longer_config() {
    let done = change("bert/dynamo", scale(LawName::Linear, to(128))).unwrap();
    let want = json!({"max_position_embeddings": [64, 128]});
    assert_eq!(json!(done.changes()), want);
    let unsaid = "config.json has no key for a resized table (linear)";
    assert_eq!(done.warnings(), [unsaid]);
    let done = change("gpt2/dynamo", scale(ScaleType::Tile, to(128))).unwrap();
    assert_eq!(json!(done.changes()), json!({"n_positions": [64, 128]}));
}

#[test]
fn a_shorter_length_bounds_what_is_next_to_the_config() {
    let shorter = Lengths {
        spans: vec![Span::of_model(64, 32)],
        ..Lengths::default()
    };
    let longer = Lengths {
        spans: vec![Span::of_model(64, 128)],
        ..Lengths::default()
    };
    let key = "max_seq_length";
    // The old length, one that is too long now, ones that are reached, one that was no bound before, and what
    // stands for none.
    for (old, short, long) in [
        (64, 32, 128),
        (50, 32, 50),
        (32, 32, 32),
        (20, 20, 20),
        (100, 32, 100),
        (2_147_483_647, 2_147_483_647, 2_147_483_647),
    ] {
        for (lengths, want) in [(&shorter, short), (&longer, long)] {
            let mut config = json!({ key: old });
            lengths.edit_bounded(config.as_object_mut().unwrap(), &[key]);
            assert_eq!(config[key], want, "{old} by {lengths:?}");
        }
    }
    let mut endless = json!({ key: 1e30 });
    shorter.edit_bounded(endless.as_object_mut().unwrap(), &[key]);
    assert_eq!(endless[key], 1e30);
}

/// The clamps of Wav2Vec2-BERT, and what a table has that is not clamped.
#[test]
fn farther_distances_are_those_of_the_config() {
    let tables = Tables {
        clamps: vec![[12, 24], [5, 10], [7, 14], [7, 15]],
        ..Tables::default()
    };
    let mut config = json!({
        "left_max_position_embeddings": 12,
        "right_max_position_embeddings": 5,
        "max_relative_positions": 7,
        "hidden_size": 12,
    });
    tables.edit_clamps(config.as_object_mut().unwrap());
    let want = json!({
        "left_max_position_embeddings": 24,
        "right_max_position_embeddings": 10,
        "max_relative_positions": 7,
        "hidden_size": 12,
    });
    assert_eq!(config, want);
}

#[test]
fn rows_of_cosines_are_a_longer_config() {
    let request = Request {
        parameters: to(128),
        ..Request::default()
    };
    let done = change("gptj/dynamo", request).unwrap();
    assert_eq!(json!(done.changes()), json!({"n_positions": [64, 128]}));
}

/// RoBERTa's table has two rows before that of position 0, and its config counts them.
#[test]
fn reserved_rows_count_where_the_config_counts_them() {
    let lengths = Lengths {
        spans: vec![Span {
            reserved: 2,
            ..Span::of_model(512, 1024)
        }],
        kept: vec![],
    };
    for (old, new) in [(514, 1026), (512, 1024), (513, 513), (1026, 1026), (0, 0)] {
        let mut config = json!({"max_position_embeddings": old, "vocab_size": 514});
        let edited = lengths.edit(config.as_object_mut().unwrap(), &KEYS);
        let want = json!({"max_position_embeddings": new, "vocab_size": 514});
        assert_eq!(config, want);
        let is_known = ![513, 0].contains(&old);
        assert_eq!(lengths.warnings(&[edited]).is_empty(), is_known, "{old}");
    }
}

#[test]
fn every_key_of_a_length_is_edited_and_no_other() {
    let lengths = Lengths {
        spans: vec![Span::of_model(64, 128)],
        kept: vec![],
    };
    let all = |length: usize| {
        let keys = KEYS.iter().map(|key| ((*key).to_owned(), json!(length)));
        let mut all = serde_json::Map::from_iter(keys);
        all.insert("hidden_size".to_owned(), json!(64));
        all
    };
    let mut config = all(64);
    lengths.edit(&mut config, &KEYS);
    assert_eq!(config, all(128));
    for other in [
        json!("64"),
        json!(null),
        json!([64]),
        json!(-64),
        json!(64.5),
    ] {
        let mut config = json!({"n_ctx": other});
        lengths.edit(config.as_object_mut().unwrap(), &KEYS);
        assert_eq!(config, json!({"n_ctx": other}));
    }
}

#[test]
fn a_length_of_both_stacks_stays_where_one_changes() {
    let lengths = Lengths {
        spans: vec![Span {
            stack: Some(Stack::Decoder),
            ..Span::of_model(64, 128)
        }],
        kept: vec![64],
    };
    let config = json!({
        "max_position_embeddings": 64, "max_target_positions": 64, "max_source_positions": 64,
        "max_decoder_position_embeddings": 64, "max_encoder_position_embeddings": 64
    });
    let mut edited = config.clone();
    let said = lengths.edit(edited.as_object_mut().unwrap(), &KEYS);
    let want = json!({
        "max_position_embeddings": 64, "max_target_positions": 128, "max_source_positions": 64,
        "max_decoder_position_embeddings": 128, "max_encoder_position_embeddings": 64
    });
    assert_eq!(edited, want);
    let warnings = lengths.warnings(&[said]);
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].starts_with("max_position_embeddings of the config stays"));
}

#[test]
fn a_sentence_is_said_once() {
    let of = |stack| Span {
        stack: Some(stack),
        ..Span::of_model(64, 128)
    };
    let mut lengths = Lengths::default();
    for stack in [Stack::Decoder, Stack::Encoder, Stack::Decoder] {
        lengths.add(of(stack));
    }
    assert_eq!(lengths.spans.len(), 2);
    let want = "no key of the config is the old length (64), so none is the new one (128)";
    assert_eq!(lengths.warnings(&[]), [want]);
    lengths.kept = vec![64];
    let mut config = json!({"max_position_embeddings": 64});
    let edit = |config: &mut Value| lengths.edit(config.as_object_mut().unwrap(), &KEYS);
    let edited = [edit(&mut config.clone()), edit(&mut config)];
    assert_eq!(lengths.warnings(&edited).len(), 1);
}

#[test]
fn a_length_that_no_key_names_is_a_warning() {
    let config = with(
        "llama/torchscript",
        json!({"max_position_embeddings": 2048}),
    );
    let done = change_of(
        "llama/torchscript",
        scale(LawName::Linear, fourfold()),
        &config,
    );
    let done = done.unwrap();
    assert_eq!(done.value()["max_position_embeddings"], 2048);
    let want = "no key of the config is the old length (64), so none is the new one (256)";
    assert_eq!(done.warnings(), [want]);
}

#[test]
fn biases_and_distances_have_no_key() {
    for (name, factor, what) in [
        ("bloom/dynamo", 2.0, "slopes of alibi that are divided by 2"),
        (
            "t5-encoder/dynamo",
            2.0,
            "distances of t5-bias that are divided by 2",
        ),
    ] {
        let parameters = Parameters {
            factor: Some(factor),
            ..Parameters::default()
        };
        let done = change(name, scale(LawName::Linear, parameters)).unwrap();
        assert!(done.changes().is_empty(), "{name}");
        let want = format!("config.json has no key for {what}");
        assert_eq!(done.warnings(), [want]);
    }
}

#[test]
fn divided_positions_of_sinusoids_have_no_key() {
    let config = json!({"max_position_embeddings": 128});
    let parameters = Parameters {
        factor: Some(2.0),
        ..Parameters::default()
    };
    let done = change_of(
        "mini/sinusoidal",
        scale(LawName::Linear, parameters),
        &config,
    );
    let done = done.unwrap();
    assert_eq!(done.value(), &json!({"max_position_embeddings": 256}));
    let want = "config.json has no key for sinusoids of positions that are divided by 2";
    assert_eq!(done.warnings(), [want]);
}

#[test]
fn an_image_size_keeps_its_form() {
    let done = change("vit/dynamo", image(48, 48)).unwrap();
    assert_eq!(json!(done.changes()), json!({"image_size": [32, 48]}));
    let done = change("vit/dynamo", image(24, 16)).unwrap();
    assert_eq!(json!(done.changes()), json!({"image_size": [32, [24, 16]]}));
    let unsaid = "config.json has no key for resized rows of patches (cubic)";
    assert_eq!(done.warnings(), [unsaid]);
    let images = Images {
        old: [32, 32],
        new: [24, 16],
    };
    let sides = |height: u32, width: u32| json!({"height": height, "width": width});
    for (old, new) in [
        (json!([32, 32]), json!([24, 16])),
        (sides(32, 32), sides(24, 16)),
        (json!(30), json!(30)),
        (json!([32, 30]), json!([32, 30])),
        (json!([32]), json!([32])),
        (json!("32"), json!("32")),
    ] {
        let mut config = json!({"image_size": old});
        let is_said = images.edit(config.as_object_mut().unwrap());
        assert_eq!(config, json!({"image_size": new}));
        assert_eq!(is_said, old != new, "{old}");
    }
    let square = Images {
        old: [24, 16],
        new: [48, 48],
    };
    let mut config =
        json!({"image_size": [24, 16], "vision_config": {"image_size": sides(24, 16)}});
    assert!(square.edit(config.as_object_mut().unwrap()));
    let want = json!({"image_size": [48, 48], "vision_config": {"image_size": sides(48, 48)}});
    assert_eq!(config, want);
}

#[test]
fn the_inner_config_of_images_is_edited() {
    let (_, vision) = fixture("vit/dynamo");
    let config = json!({"vision_config": vision});
    let done = change_of("vit/dynamo", image(48, 48), &config).unwrap();
    let want = json!({"vision_config.image_size": [32, 48]});
    assert_eq!(json!(done.changes()), want);
}

#[test]
fn an_image_size_that_no_key_names_is_a_warning() {
    let config: Value = json!({"image_size": 224});
    let done = change_of("vit/dynamo", image(48, 48), &config).unwrap();
    assert!(done.changes().is_empty());
    let want =
        "no image_size of the config is the old size (32x32), so none is the new one (48x48)";
    assert_eq!(done.warnings().last().unwrap(), want);
}

#[test]
fn files_next_to_the_config_name_the_same_lengths() {
    let done = change("llama/torchscript", scale(LawName::Yarn, fourfold())).unwrap();
    let tokenizer = json!({"tokenizer_class": "T", "model_max_length": 64, "max_length": 64});
    let changed = done.tokenizer_config(&tokenizer).unwrap();
    assert_eq!(
        json!(changed.changes()),
        json!({"model_max_length": [64, 256]})
    );
    let endless = json!({"model_max_length": 1e30});
    assert!(
        done.tokenizer_config(&endless)
            .unwrap()
            .changes()
            .is_empty()
    );
    let genai = json!({
        "model": {"context_length": 64, "vocab_size": 64, "decoder": {"context_length": 64}},
        "search": {"max_length": 64, "min_length": 0}
    });
    let changed = done.genai_config(&genai).unwrap();
    let want = json!({"model.context_length": [64, 256], "search.max_length": [64, 256]});
    assert_eq!(json!(changed.changes()), want);
    for odd in [
        json!({}),
        json!({"model": 64}),
        json!({"model": {"context_length": 63}}),
    ] {
        assert!(done.genai_config(&odd).unwrap().changes().is_empty());
    }
    for wrong in [json!([]), json!(64), json!(null)] {
        for refused in [done.genai_config(&wrong), done.tokenizer_config(&wrong)] {
            let why = refused.unwrap_err().to_string();
            assert_eq!(why, "the config must be a JSON object");
        }
    }
}
