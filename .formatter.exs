[
  inputs: [
    "{mix,.formatter}.exs",
    "{bench,config,demo,lib,test}/**/*.{ex,exs}"
  ]
]
