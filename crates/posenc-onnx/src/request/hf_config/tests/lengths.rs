//! The original length, where a config has it outside of the scaling dict.

use super::*;

#[test]
fn a_length_outside_of_the_dict_overrides_longropes_factor() {
    let mut value = scaled(
        json!({"type": "longrope", "short_factor": ONES, "long_factor": TWOS,
        "factor": 32.0, "original_max_position_embeddings": 128}),
    );
    value["original_max_position_embeddings"] = json!(64);
    let Scaling::LongRope(longrope) = request(value).scaling else {
        panic!()
    };
    assert_eq!(longrope.original_length, 64);
    assert_eq!(longrope.attention, LongRopeAttention::Extension(4.0));
}

#[test]
fn a_length_outside_of_the_dict_is_the_original_one_where_the_dict_has_none() {
    for (dict, want) in [
        (json!({"rope_type": "yarn", "factor": 4.0}), 64),
        (
            json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}),
            64,
        ),
        (
            json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}),
            64,
        ),
    ] {
        let mut value = scaled(dict);
        value["original_max_position_embeddings"] = json!(want);
        let scaling = request(value).scaling;
        assert_eq!(scaling.original_length(), Some(want));
    }
}

#[test]
fn a_factor_of_null_is_the_ratio_of_the_lengths() {
    let yarn = json!({"rope_type": "yarn", "factor": null, "original_max_position_embeddings": 64});
    let value = scaled(yarn);
    let Scaling::Yarn(yarn) = request(value.clone()).scaling else {
        panic!()
    };
    assert_eq!((yarn.factor, yarn.original_length), (4.0, 64));
    // The key has to be there, and the original length, too.
    for key in ["factor", "original_max_position_embeddings"] {
        let mut without = value.clone();
        without["rope_scaling"].as_object_mut().unwrap().remove(key);
        assert!(config(without).rope_for(0).is_err(), "{key}");
    }
}
