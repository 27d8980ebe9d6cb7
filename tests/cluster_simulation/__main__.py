from tests.cluster_simulation.run import main

main()
