assertions = [
  assert_calls: 2,
  assert_calls: 3,
  refute_called: 2,
  refute_called: 3,
  assert_answer: 2,
  assert_within: 2,
  assert_approved: 2,
  assert_approved: 3
]

[
  inputs: ["{mix,.formatter}.exs", "{lib,test}/**/*.{ex,exs}"],
  locals_without_parens: assertions,
  # For `import_deps: [:ash_agent_test]` of applications.
  export: [locals_without_parens: assertions]
]
